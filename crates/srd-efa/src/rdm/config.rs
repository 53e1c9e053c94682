//! Limits of an endpoint: those that its caller sets, and those that follow from them.

use crate::rdm::wire::message::MESSAGE_COST;

/// Upper bound of the number of operations, independent of the configuration. The number of a
/// datagram cannot represent more.
pub(crate) const OPERATIONS_MAX: u32 = crate::slots::INDEX_MASK + 1;

/// Largest distance between the id of a message and the id that is next in order. A part carries
/// only the low 16 bits of its message's id (G2), which identify the message up to half of their
/// range in both directions.
pub(crate) const IDS_APART_MAX: u32 = 1 << 15;

/// Limits that the caller sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Largest number of operations in progress.
    pub operations_max: u32,
    /// Largest number of posted receives of each sort (with and without tags).
    pub receives_max: u32,
    /// Whether completions ([`crate::layer::Kind::RemoteRead`],
    /// [`crate::layer::Kind::RemoteWrite`]) report peers' reads, and peers' writes without data.
    pub report_remote: bool,
    /// Secret key of the hash tables.
    pub seed: u64,
}

/// Limits that follow from the configuration, and constants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) operations_max: u32,
    /// Largest number of ended operations that wait to be polled; above it no operation is
    /// accepted.
    pub(crate) dones_max: usize,
    /// Largest number of peers; each has a number.
    pub(crate) peers_max: u32,
    /// Largest number of strangers, which are peers that the application has not added (H7). The
    /// other numbers are for peers that the application adds.
    pub(crate) strangers_max: u32,
    /// Largest number of HELLO frames that wait until the next call of
    /// [`Rdm::pump`](crate::rdm::Rdm::pump) answers them.
    pub(crate) hellos_max: usize,
    /// Largest message, in bytes, whose bytes the sender sends. The receiver reads a larger message
    /// from the sender's memory (G2).
    pub(crate) medium_bytes_max: u64,
    /// Smallest message that is sent as a long message when credit is missing (G4), in bytes.
    pub(crate) long_bytes_min: u64,
    /// Largest number of buffered bytes of messages and parts that arrived early (G1). A sender has
    /// at most a quarter of the space that other senders leave, and one and a half times its credit
    /// (G5).
    pub(crate) reorder_bytes_max: usize,
    /// Largest distance of a message's id from the id that is next in order (G1). The ids of all
    /// messages that the largest credit permits are nearer, so that no limit of ids refuses a
    /// sender that respects its credit.
    pub(crate) reorder_ids_max: u32,
    /// Credit that senders share (G5), in bytes. Together they may hold more for a time: a sender
    /// that comes while the others hold all of it gets half of its share nevertheless.
    pub(crate) credit_bytes: u64,
    /// Largest credit of one sender (G5), in bytes. It permits 127 messages of 64 KiB, or 64 Gb/s
    /// with a round trip of 1 ms. A larger credit would permit more messages than the ids in parts
    /// distinguish ([`IDS_APART_MAX`]).
    pub(crate) window_bytes_max: u64,
    /// Smallest credit of one sender (G5), in bytes: half of it is enough for the longest injected
    /// message.
    pub(crate) window_bytes_min: u64,
    /// Largest number of stored unexpected messages of each sort (with and without tags). It is 16
    /// times the number that `credit_bytes` permits, because many senders together may hold more
    /// credit, and messages of earlier sessions are stored, too (G5). So senders that use all of
    /// their credit leave space for the messages of others.
    pub(crate) messages_max: u32,
    /// Largest number of reads of long messages in progress (G3).
    pub(crate) reads_max: u32,
    /// Largest number of bytes of one request to read or write.
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
            reorder_ids_max: IDS_APART_MAX,
            credit_bytes: 64 << 20,
            window_bytes_max: u64::from(IDS_APART_MAX) * MESSAGE_COST, // 8 MiB
            window_bytes_min: 16 << 10,
            messages_max: 1 << 22,
            reads_max: 16,
            read_bytes_max: crate::RDMA_BYTES_MAX.into(),
        }
    }
}
