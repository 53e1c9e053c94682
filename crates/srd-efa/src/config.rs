//! Every limit of a device, with unit, default and meaning.

use srd_proto::Duration;

/// Sizes of a device's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Smallest number that a queue pair may get.
    pub qpn_first: u16,
    /// Largest number of queue pairs. Their numbers are `qpn_first` to `qpn_first + qps_max - 1`.
    /// The number of a destroyed queue pair is used again only after all other free numbers.
    pub qps_max: u16,
    /// Largest number of protection domains.
    pub pds_max: u32,
    /// Largest number of address handles; EFA numbers them with 16 bits.
    pub ahs_max: u32,
    /// Largest number of completion queues.
    pub cqs_max: u32,
    /// Largest number of registrations, at most [`crate::MRS_MAX`].
    pub mrs_max: u32,
    /// Largest size of a send queue, in work requests.
    pub sq_wrs_max: u32,
    /// Largest size of a receive queue, in work requests.
    pub rq_wrs_max: u32,
    /// Largest size of a completion queue, in entries.
    pub cq_entries_max: u32,
    /// Largest number of inline bytes of a queue pair: 32 on the first EFA devices, 80 on later
    /// devices.
    pub inline_bytes_max: u32,
    /// Largest number of peers' writes of more than one datagram that are in progress on this
    /// device. A further write is refused (RNR), unless a write in progress has received nothing
    /// for `write_idle`.
    pub writes_in_max: u32,
    /// Time without a datagram after which a peer's write may be removed to make space for another
    /// write.
    pub write_idle: Duration,
    /// Largest number of peers' reads that this device answers at the same time. A further read is
    /// refused (RNR).
    pub reads_in_max: u32,
    /// Largest number of payload bytes of transfers that wait in the transport for one peer: enough
    /// to keep the peer busy, and few enough that later messages do not wait for long.
    pub unsent_bytes_max: u64,
    /// Whether a [`crate::Note`] of each peer's transfer that ends is stored, for
    /// [`crate::Device::note`].
    pub notes: bool,
    /// Secret key of the hash tables, so that peers cannot choose keys that fall into one bucket.
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
