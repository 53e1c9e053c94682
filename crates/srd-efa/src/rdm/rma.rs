//! Reads and writes of peers' memory, and registrations for theirs.

use super::arrive::Refusal;
use super::send::Step;
use super::wire::Frame;
use super::{Rdm, Refused, Rma, Shared, World};
use crate::memory::Memory;
use crate::slab::Key;

impl Rdm {
    /// Reads or writes a peer's memory.
    ///
    /// # Errors
    /// Not done yet.
    pub fn rma(&mut self, _world: &mut World<'_>, _rma: Rma<'_>) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }
    /// Lets peers use memory. `Invalid` if the key is taken.
    ///
    /// # Errors
    /// Not done yet.
    pub fn share(&mut self, _shared: Shared) -> Result<(), Refused> {
        Ok(())
    }
    /// Takes it back: transfers that use it fail.
    pub fn unshare(&mut self, _rkey: u64) {}

    pub(super) fn step_rma(&mut self, _world: &mut World<'_>, _index: u32, _key: Key) -> Step {
        Step::Over
    }
    pub(super) fn rma_own(&mut self, _world: &mut World<'_>, _key: Key) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }
    pub(super) fn rma_sent(&mut self, _key: Key) {}
    pub(super) fn on_write(
        &mut self,
        _index: u32,
        _frame: &Frame<'_>,
        _memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        Err(Refusal::Malformed)
    }
}
