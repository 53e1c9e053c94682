//! What a seed that passed did.

use std::collections::BTreeMap;

/// What a seed that passed did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// A number that sums up all that happened.
    pub digest: u64,
    /// Packets that hosts sent.
    pub packets: u64,
    /// Datagrams that were delivered.
    pub delivered: u64,
    /// Frames of clouds that came from other hosts by SRD.
    pub by_srd: u64,
    /// Datagrams by status number.
    pub statuses: BTreeMap<u8, u64>,
    /// Datagrams that two runs of a receiver got, as plain ones may that were sent without contact.
    pub again_after_restart: u64,
    /// From the faults' end to the flows' end.
    pub liveness_us: u64,
    /// Packets in ten quiet milliseconds afterwards.
    pub quiet_packets: u64,
}
