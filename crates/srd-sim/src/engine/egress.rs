//! An egress port: a first-in-first-out queue of limited bytes in front of a link. The queue is
//! stored as one number: the time when the link will have sent every packet of the queue.
//!
//! So a hop costs one event: when a packet is accepted its departure is known, and its arrival at
//! the far end is scheduled at once. The number of bytes in the queue is the time until the link is
//! free, multiplied by its speed. A packet in transmission counts with its remaining bytes only.
//!
//! Three approximations follow. Each is an error of at most one packet or one queue. When a link
//! changes speed, waiting packets leave at the old speed. Marks are decided when a packet arrives.
//! A control packet that overtakes delays only the packets that arrive after it.

use crate::engine::event::Target;

/// Special treatment of packets at a port, as bits. [`Egress::rules`] holds the bits of one port.
/// Packets at a port without any bit take the fast path.
pub mod rule {
    /// The port marks packets (ECN) when its queue is long.
    pub const MARK: u32 = 1;
    /// The port trims the payload off a packet that does not fit into its queue, instead of
    /// dropping the packet.
    pub const TRIM: u32 = 2;
    /// The port sends control packets before data packets.
    pub const CONTROL: u32 = 4;
    /// The port has a fault: loss, corruption, duplication, or a partition that separates its host.
    pub const FAULT: u32 = 8;
    /// The link of the port is down, or was down earlier in the run.
    pub const DOWN: u32 = 16;
    /// The packets of the port are written to a capture file.
    pub const CAPTURE: u32 = 32;
    /// The port belongs to a lossless network: its packets wait in a separate queue, and pause
    /// frames from the far end can stop it.
    pub const LOSSLESS: u32 = 64;
    /// Bits that matter when a packet enters the queue.
    pub const ON_SEND: u32 = MARK | TRIM | CONTROL | FAULT | CAPTURE | LOSSLESS;
}

/// State of an egress port.
#[derive(Clone, Copy, Debug)]
pub struct Egress {
    busy_until_ps: u64,
    // Picoseconds per byte, with 16 fractional bits.
    byte_ps_q16: u64,
    limit_ps: u64,
    latency_ps: u64,
    next: Target,
    /// Bits of [`rule`] that apply to this port.
    pub rules: u32,
    packets: u64,
    bytes: u64,
    backlog_max_ps: u64,
}

impl Egress {
    /// Creates a port with an empty queue. `queue_bytes` is the largest number of bytes in the
    /// queue, the packet in transmission included; `None` means no limit.
    pub fn new(rate_bps: u64, latency_ps: u64, queue_bytes: Option<u64>, next: Target) -> Self {
        let byte_ps_q16 = byte_ps_q16(rate_bps, 1.0);
        Self {
            busy_until_ps: 0,
            byte_ps_q16,
            limit_ps: limit_ps(byte_ps_q16, queue_bytes),
            latency_ps,
            next,
            rules: 0,
            packets: 0,
            bytes: 0,
            backlog_max_ps: 0,
        }
    }

    /// Sets the speed to a fraction of `rate_bps`, for packets that arrive from now on. Packets in
    /// the queue leave at the previous speed.
    pub fn set_rate(&mut self, rate_bps: u64, fraction: f64, queue_bytes: Option<u64>) {
        self.byte_ps_q16 = byte_ps_q16(rate_bps, fraction);
        self.limit_ps = limit_ps(self.byte_ps_q16, queue_bytes);
    }

    /// Accepts a packet and returns the time when it arrives at the far end, or `None` if the queue
    /// has no space for it.
    #[inline]
    pub fn enqueue(&mut self, now_ps: u64, bytes: u16) -> Option<u64> {
        let wait_ps = self.busy_until_ps.saturating_sub(now_ps);
        let backlog_ps = wait_ps + self.serialize_ps(bytes);
        if backlog_ps > self.limit_ps {
            return None;
        }
        self.busy_until_ps = now_ps + backlog_ps;
        self.count(bytes, backlog_ps);
        Some(self.busy_until_ps + self.latency_ps)
    }

    /// Accepts a packet that overtakes all waiting packets, except the packet in transmission and
    /// earlier packets of its class. `class_until_ps` is the time when the link will have sent
    /// every packet of this class. Returns the time of arrival at the far end, or `None` if the
    /// queue has no space.
    pub fn enqueue_first(
        &mut self,
        now_ps: u64,
        bytes: u16,
        class_until_ps: &mut u64,
        packet_bytes_max: u16,
    ) -> Option<u64> {
        let serialize_ps = self.serialize_ps(bytes);
        let wait_ps = self.busy_until_ps.saturating_sub(now_ps);
        let in_transmission_ps = wait_ps % self.serialize_ps(packet_bytes_max).max(1);
        let class_wait_ps = class_until_ps.saturating_sub(now_ps).max(in_transmission_ps);
        if class_wait_ps + serialize_ps > self.limit_ps {
            return None;
        }
        *class_until_ps = now_ps + class_wait_ps + serialize_ps;
        self.busy_until_ps = now_ps + wait_ps + serialize_ps;
        self.count(bytes, wait_ps + serialize_ps);
        Some(*class_until_ps + self.latency_ps)
    }

    #[inline]
    fn count(&mut self, bytes: u16, backlog_ps: u64) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.backlog_max_ps = self.backlog_max_ps.max(backlog_ps);
    }

    #[inline]
    fn serialize_ps(&self, bytes: u16) -> u64 {
        (u64::from(bytes) * self.byte_ps_q16) >> 16
    }

    /// Whether the link is free at `now_ps`.
    #[inline]
    pub fn is_free(&self, now_ps: u64) -> bool {
        self.busy_until_ps <= now_ps
    }

    /// Returns the time in picoseconds at which the link will have sent all packets of the queue.
    #[inline]
    pub fn busy_until_ps(&self) -> u64 {
        self.busy_until_ps
    }

    /// Returns the switch or host at the far end of the link.
    #[inline]
    pub fn next(&self) -> Target {
        self.next
    }

    /// Returns the propagation delay of the link plus the delay of the next switch, in picoseconds.
    #[inline]
    pub fn latency_ps(&self) -> u64 {
        self.latency_ps
    }

    /// Bytes in the queue at `now_ps`.
    pub fn backlog_bytes(&self, now_ps: u64) -> u64 {
        self.to_bytes(self.busy_until_ps.saturating_sub(now_ps))
    }

    /// Returns the largest number of bytes in the queue since the beginning, or since the last call
    /// of [`Self::take_backlog_bytes_max`].
    pub fn backlog_bytes_max(&self) -> u64 {
        self.to_bytes(self.backlog_max_ps)
    }

    /// Returns the largest number of bytes in the queue since the previous call of this function.
    /// The bytes at `now_ps` count for this period and for the next.
    pub fn take_backlog_bytes_max(&mut self, now_ps: u64) -> u64 {
        let now = self.busy_until_ps.saturating_sub(now_ps);
        let most = std::mem::replace(&mut self.backlog_max_ps, now);
        self.to_bytes(most.max(now))
    }

    /// Returns the number of packets that the port has accepted.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of bytes that the port has accepted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn to_bytes(self, ps: u64) -> u64 {
        let bytes = (u128::from(ps) << 16).div_ceil(u128::from(self.byte_ps_q16));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to 2^47
fn byte_ps_q16(rate_bps: u64, fraction: f64) -> u64 {
    let exact = (u128::from(8_000_000_000_000_u64) << 16) / u128::from(rate_bps.max(1));
    let whole = u64::try_from(exact).unwrap_or(u64::MAX).min(1 << 47);
    if (fraction - 1.0).abs() < f64::EPSILON {
        return whole;
    }
    (whole as f64 / fraction).round().clamp(1.0, (1_u64 << 47) as f64) as u64
}

fn limit_ps(byte_ps_q16: u64, queue_bytes: Option<u64>) -> u64 {
    let Some(bytes) = queue_bytes else { return u64::MAX };
    let ps = (u128::from(bytes) * u128::from(byte_ps_q16)) >> 16;
    u64::try_from(ps).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::Kind;

    fn port(rate_bps: u64, queue_bytes: u64) -> Egress {
        Egress::new(rate_bps, 1_000_000, Some(queue_bytes), Target::new(Kind::Host, 0))
    }

    #[test]
    fn port_is_one_cache_line() {
        assert_eq!(size_of::<Egress>(), 64);
    }

    #[test]
    fn packets_leave_back_to_back_at_exact_times() {
        let mut at_100g = port(100_000_000_000, 1 << 20);
        assert_eq!(at_100g.enqueue(0, 4150), Some(1_332_000));
        assert_eq!(at_100g.enqueue(100_000, 4150), Some(1_664_000));
        assert_eq!(at_100g.enqueue(664_000, 64), Some(1_669_120));
        let mut at_400g = port(400_000_000_000, 1 << 20);
        assert_eq!(at_400g.enqueue(0, 4150), Some(1_083_000));
        let mut slow = port(100_000_000_000, 1 << 20);
        slow.set_rate(100_000_000_000, 0.25, Some(1 << 20));
        assert_eq!(slow.enqueue(0, 4150), Some(2_328_000));
    }

    #[test]
    fn queue_of_ten_packets_takes_ten_and_no_byte_more() {
        let mut port = port(100_000_000_000, 41_500);
        for _ in 0..10 {
            assert!(port.enqueue(0, 4150).is_some());
        }
        assert_eq!(port.enqueue(0, 1), None);
        assert_eq!(port.backlog_bytes(0), 41_500);
        // One byte leaves in 80 ps at 100 Gb/s.
        assert_eq!(port.enqueue(79, 1), None);
        assert!(port.enqueue(80, 1).is_some());
        assert_eq!((port.packets(), port.bytes()), (11, 41_501));
        assert_eq!(port.backlog_bytes_max(), 41_500);
        assert_eq!(port.backlog_bytes(80 * 41_501), 0);
    }

    #[test]
    fn control_packet_waits_for_the_packet_in_transmission_only() {
        let mut port = port(100_000_000_000, 1 << 20);
        for _ in 0..10 {
            port.enqueue(0, 4150);
        }
        let mut class = 0;
        let now_ps = 100_000;
        let arrives = port.enqueue_first(now_ps, 64, &mut class, 4150);
        assert_eq!(arrives, Some(332_000 + 5_120 + 1_000_000));
        // A later packet is delayed by the control packet.
        assert_eq!(port.enqueue(now_ps, 4150), Some(11 * 332_000 + 5_120 + 1_000_000));
    }
}
