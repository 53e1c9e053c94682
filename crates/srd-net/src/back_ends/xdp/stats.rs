//! Counters of the AF_XDP back end: the reasons for losses, and packets through the kernel.

use crate::back_ends::io::IoStats;
use crate::sys::shared::xdp::Statistics;

/// Counters of the AF_XDP back end, in addition to [`IoStats`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XdpStats {
    /// Sent packets that bypassed the kernel.
    pub sent_packets: u64,
    /// Received packets that bypassed the kernel.
    pub received_packets: u64,
    /// Batches that were left to the kernel, because the next hop was not known or not confirmed,
    /// another interface leads to it, or a packet was too large. This includes `lost_no_way`.
    pub batches_to_kernel: u64,
    /// Packets received through the kernel.
    pub received_by_kernel: u64,
    /// Received packets whose checksum the sender's kernel left to a device.
    pub received_partial_checksum: u64,
    /// Received packets that were dropped because a length in a header was impossible.
    pub dropped_malformed: u64,
    /// Received packets that were dropped because a checksum was wrong.
    pub dropped_checksum: u64,
    /// Packets that were lost because every frame to receive into held an unread packet.
    pub dropped_no_frame: u64,
    /// Packets that were lost because the receive ring was full.
    pub dropped_ring_full: u64,
    /// Packets that the kernel dropped for another reason: most were larger than a frame.
    pub dropped_by_kernel: u64,
    /// Batches that were lost because they had to be sent through a UDP socket. This back end has
    /// no UDP sockets: they belong to the back end of the first queue.
    pub lost_no_way: u64,
    /// Batches that were lost because the interface accepted nothing and every frame was in use.
    pub lost_interface_down: u64,
    /// Number of times that a batch could not be queued because too few frames were free.
    pub send_no_frame: u64,
    /// Notifications of queued frames after which the kernel had not taken every frame.
    pub doorbells_waiting: u64,
    /// Notifications of queued frames that the interface refused.
    pub doorbells_refused: u64,
}

impl XdpStats {
    /// Returns these counters, completed by the kernel's counters of the socket.
    pub(super) fn with(mut self, kernel: &Statistics) -> Self {
        self.dropped_no_frame = kernel.no_frame;
        self.dropped_ring_full = kernel.ring_full;
        self.dropped_by_kernel = kernel.dropped;
        self
    }
}

/// Returns the sums of the counters of both back ends.
pub(super) fn sum(a: &IoStats, b: &IoStats) -> IoStats {
    IoStats {
        send_calls: a.send_calls + b.send_calls,
        sent_batches: a.sent_batches + b.sent_batches,
        sent_packets: a.sent_packets + b.sent_packets,
        sent_bytes: a.sent_bytes + b.sent_bytes,
        send_blocked: a.send_blocked + b.send_blocked,
        send_too_large: a.send_too_large + b.send_too_large,
        send_failed: a.send_failed + b.send_failed,
        receive_calls: a.receive_calls + b.receive_calls,
        received_messages: a.received_messages + b.received_messages,
        received_packets: a.received_packets + b.received_packets,
        received_bytes: a.received_bytes + b.received_bytes,
        sleeps: a.sleeps + b.sleeps,
        undelivered: a.undelivered + b.undelivered,
    }
}
