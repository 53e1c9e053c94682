//! Every limit of an endpoint: those that its caller sets, and those that follow.

/// Upper bound of the number of operations, independent of the configuration: the number of a
/// datagram can represent no more.
pub(crate) const OPERATIONS_MAX: u32 = crate::slots::INDEX_MASK + 1;

/// Every limit of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Operations that may be under way.
    pub operations_max: u32,
    /// Receives that may be posted, of each sort.
    pub receives_max: u32,
    /// Report peers' reads and writes without data, too ([`crate::layer::Kind::RemoteRead`]).
    pub report_remote: bool,
    /// Secret that tables are keyed with.
    pub seed: u64,
}

/// Limits that follow from the configuration, and constants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) operations_max: u32,
    /// Ended operations that may wait to be polled before nothing more is taken.
    pub(crate) dones_max: usize,
    /// Peers by number.
    pub(crate) peers_max: u32,
    /// Strangers (H7): the rest of the numbers is the application's.
    pub(crate) strangers_max: u32,
    /// HELLOs that may wait for the next pump.
    pub(crate) hellos_max: usize,
    /// The longest message that is sent without being read by its receiver (G2).
    pub(crate) medium_bytes_max: u64,
    /// The shortest message that is sent as a long one when credit is missing (G4).
    pub(crate) long_bytes_min: u64,
    /// Bytes buffered of messages and parts that came early (G1).
    pub(crate) reorder_bytes_max: usize,
    /// Bytes buffered of one peer's messages and parts that came early (G5).
    pub(crate) reorder_conn_bytes_max: usize,
    /// Number of ids by which a message may be ahead of its turn (G1).
    pub(crate) reorder_ids_max: u32,
    /// Credit of all senders together, and the most and the least of one (G5).
    pub(crate) credit_bytes: u64,
    pub(crate) window_bytes_max: u64,
    pub(crate) window_bytes_min: u64,
    /// Reads of long messages under way (G3).
    pub(crate) reads_max: u32,
    /// Bytes of one request to read or write.
    pub(crate) read_bytes_max: u64,
}

impl Bounds {
    pub(crate) fn of(config: &Config) -> Self {
        let operations_max = config.operations_max.clamp(1, OPERATIONS_MAX);
        Self {
            operations_max,
            dones_max: operations_max as usize + 2 * config.receives_max as usize + 64,
            peers_max: 1 << 20,
            strangers_max: 1 << 19,
            hellos_max: 4096,
            medium_bytes_max: 65_536,
            long_bytes_min: 1024,
            reorder_bytes_max: 64 << 20,
            reorder_conn_bytes_max: 2 << 20,
            reorder_ids_max: 1 << 14,
            credit_bytes: 64 << 20,
            window_bytes_max: 1 << 20,
            window_bytes_min: 16 << 10,
            reads_max: 16,
            read_bytes_max: crate::RDMA_BYTES_MAX.into(),
        }
    }
}
