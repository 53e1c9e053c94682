//! Counters of the AF_XDP back end: the reasons for losses, and packets through the kernel.

use crate::io::IoStats;
use crate::sys::xdp::Statistics;

/// Counters beside [`IoStats`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XdpStats {
    /// Packets that went past the kernel.
    pub sent_packets: u64,
    /// Packets that came past the kernel.
    pub received_packets: u64,
    /// Batches left to the kernel: no hardware address yet, another interface, too large.
    pub batches_to_kernel: u64,
    /// Packets that came through the kernel.
    pub received_by_kernel: u64,
    /// Packets with a checksum that the sender's kernel left to a device.
    pub received_partial_checksum: u64,
    /// Lost: a length did not fit.
    pub dropped_malformed: u64,
    /// Lost: a checksum was wrong.
    pub dropped_checksum: u64,
    /// Lost: every frame to receive into held a packet that was not read yet.
    pub dropped_no_frame: u64,
    /// Lost: the receive ring was full.
    pub dropped_ring_full: u64,
    /// Lost because the kernel dropped it for another reason: mostly it was larger than a frame.
    pub dropped_by_kernel: u64,
    /// Lost batches: the hardware address of the next hop was not known, and another queue has the
    /// UDP sockets.
    pub lost_no_way: u64,
    /// Lost batches: the interface took nothing, and every frame was in use.
    pub lost_interface_down: u64,
    /// Sends that found every frame in use.
    pub send_no_frame: u64,
    /// Doorbells that the kernel did not take every frame at.
    pub doorbells_waiting: u64,
    /// Doorbells that the interface refused.
    pub doorbells_refused: u64,
}

impl XdpStats {
    /// With the kernel's own counters.
    pub(super) fn with(mut self, kernel: &Statistics) -> Self {
        self.dropped_no_frame = kernel.no_frame;
        self.dropped_ring_full = kernel.ring_full;
        self.dropped_by_kernel = kernel.dropped;
        self
    }
}

/// Both ways together.
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
