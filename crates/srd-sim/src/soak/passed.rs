//! Results of a soak test with a seed that passed.

use std::collections::BTreeMap;

/// Results of the run of a seed that passed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Digest of the run. Runs with equal digests were the same.
    pub digest: u64,
    /// Number of packets that hosts sent.
    pub packets: u64,
    /// Number of datagrams that were delivered.
    pub delivered: u64,
    /// Number of guests' frames that came from other hosts over SRD.
    pub by_srd: u64,
    /// Number of datagrams that ended, by status number.
    pub statuses: BTreeMap<u8, u64>,
    /// Number of datagrams that two runs of a receiver got. This is permitted for unencrypted
    /// datagrams that were sent without contact.
    pub again_after_restart: u64,
    /// Time from the end of the faults to the end of the last flow, in microseconds.
    pub liveness_us: u64,
    /// Number of packets in the ten milliseconds after the time at which the network should be
    /// quiet.
    pub quiet_packets: u64,
}
