//! What a driver does to a world between two steps: calls a machine, breaks and mends.

use srd_proto::time::Instant;

use super::{World, WorldError};
use crate::fault::Fault;
use crate::node::Node;

impl<N: Node> World<N> {
    /// Calls a host's machine, and then takes what it wants to send.
    pub fn with_node<R>(&mut self, host: u32, call: impl FnOnce(&mut N, Instant) -> R) -> R {
        let now = self.now();
        let result = call(&mut self.nodes[host as usize], now);
        self.serve(host);
        result
    }

    /// A fault begins now, whatever times it names.
    ///
    /// # Errors
    /// A fault that does not fit the network.
    pub fn begin_fault(&mut self, fault: &Fault) -> Result<(), WorldError> {
        fault.check().map_err(WorldError)?;
        let (begin, _) = self.changes_of(fault).map_err(WorldError)?;
        self.change(&begin);
        Ok(())
    }

    /// A fault that has begun ends now.
    ///
    /// # Errors
    /// A fault that does not fit the network.
    pub fn end_fault(&mut self, fault: &Fault) -> Result<(), WorldError> {
        let (_, end) = self.changes_of(fault).map_err(WorldError)?;
        if let Some(end) = end {
            self.change(&end);
        }
        Ok(())
    }
}
