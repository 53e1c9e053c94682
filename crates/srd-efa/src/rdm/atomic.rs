//! Atomic operations.

use super::arrive::Refusal;
use super::send::Step;
use super::wire::Frame;
use super::{Atomic, Rdm, Refused, World};
use crate::memory::Memory;
use crate::slab::Key;

impl Rdm {
    /// An atomic operation on a peer's memory.
    ///
    /// # Errors
    /// Not done yet.
    pub fn atomic(&mut self, _world: &mut World<'_>, _atomic: Atomic<'_>) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }
    pub(super) fn step_atomic(&mut self, _world: &mut World<'_>, _index: u32, _key: Key) -> Step {
        Step::Over
    }
    pub(super) fn atomic_own(&mut self, _world: &mut World<'_>, _key: Key) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }
    pub(super) fn on_atomic(
        &mut self,
        _index: u32,
        _frame: &Frame<'_>,
        _memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        Err(Refusal::Malformed)
    }
    pub(super) fn on_result(
        &mut self,
        _index: u32,
        _token: u64,
        _status: u8,
        _bytes: &[u8],
        _memory: &mut dyn Memory,
    ) {
    }
}
