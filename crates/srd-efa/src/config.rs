//! Every limit of a device, with unit, default and meaning.

use srd_proto::Duration;

/// Sizes of a device's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The lowest number that a queue pair may get.
    pub qpn_first: u16,
    /// Queue pairs, and how many numbers there are for them. One that was destroyed leaves its
    /// number unused until all others had their turn.
    pub qps_max: u16,
    /// Protection domains.
    pub pds_max: u32,
    /// Address handles; EFA numbers them with 16 bits.
    pub ahs_max: u32,
    /// Completion queues.
    pub cqs_max: u32,
    /// Registrations, at most [`crate::MRS_MAX`].
    pub mrs_max: u32,
    /// Work requests that a send queue may be made for.
    pub sq_wrs_max: u32,
    /// Work requests that a receive queue may be made for.
    pub rq_wrs_max: u32,
    /// Entries that a completion queue may be made for.
    pub cq_entries_max: u32,
    /// Inline bytes that a queue pair may be made for: 32 on EFA at first, 80 later.
    pub inline_bytes_max: u32,
    /// Peers' writes of more than one datagram that are under way here. One more is refused
    /// (RNR), unless one of them has been silent for `write_idle`.
    pub writes_in_max: u32,
    /// Silence after which a peer's write may be forgotten for another's sake.
    pub write_idle: Duration,
    /// Peers' reads that are being answered. One more is refused (RNR).
    pub reads_in_max: u32,
    /// Payload bytes of transfers that may wait in the transport for one peer: enough to keep
    /// it busy, and little, so that messages behind them do not wait for long.
    pub unsent_bytes_max: u64,
    /// Keep a [`crate::Note`] of every transfer of a peer's that ends, for [`crate::Device::note`].
    pub notes: bool,
    /// Secret that tables are keyed with, so that strangers cannot aim at one bucket.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            qpn_first: 16,
            qps_max: 1024,
            pds_max: 256,
            ahs_max: 65_535,
            cqs_max: 1024,
            mrs_max: 65_536,
            sq_wrs_max: 4096,
            rq_wrs_max: 32_768,
            cq_entries_max: 1 << 20,
            inline_bytes_max: 80,
            writes_in_max: 4096,
            write_idle: Duration::from_secs(10),
            reads_in_max: 4096,
            unsent_bytes_max: 256 * 1024,
            notes: false,
            seed: 0,
        }
    }
}
