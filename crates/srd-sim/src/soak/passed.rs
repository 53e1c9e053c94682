//! Results of a seed that passed.

use std::collections::BTreeMap;

/// Results of a seed that passed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Number that depends on all that happened.
    pub digest: u64,
    /// Packets that hosts sent.
    pub packets: u64,
    /// Datagrams that were delivered.
    pub delivered: u64,
    /// Frames of clouds that came from other hosts over SRD.
    pub by_srd: u64,
    /// Datagrams by status number.
    pub statuses: BTreeMap<u8, u64>,
    /// Datagrams that two runs of a receiver got: allowed for plain ones sent without contact.
    pub again_after_restart: u64,
    /// Time from the faults' end to the flows' end.
    pub liveness_us: u64,
    /// Packets in ten quiet milliseconds afterwards.
    pub quiet_packets: u64,
}
