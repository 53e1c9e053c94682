//! Go-back-N: the sending end and the receiving end of a RoCE connection.

use srd_proto::time::{Duration, Instant};

use super::config::RoceConfig;
use super::dcqcn::Rate;
use super::packet::{RoceKind, RocePacket};
use crate::engine::node::{ENDLESS, HostId};
use crate::engine::topology::serialize_ps;

/// Picoseconds in a nanosecond.
const NS: u64 = 1000;

/// The sending end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) flow: u32,
    pub(super) peer: HostId,
    pub(super) port: u16,
    bytes: u64,
    packets: u64,
    /// Number of the first unacknowledged packet.
    pub(super) una: u64,
    next: u64,
    /// Number of packets that were sent at least once.
    fresh: u64,
    rate: Option<Rate>,
    /// Time from which the rate allows the next packet, in picoseconds.
    next_at_ps: u64,
    sent_at_ps: u64,
    timeout_at: Option<Instant>,
    pub(super) retries: u32,
    /// Whether the connection is in the queue of connections that may send.
    pub(super) is_queued: bool,
    pub(super) is_alive: bool,
}

/// A packet that the connection sends now, and whether it is a retransmission.
pub(super) struct Outgoing {
    pub(super) packet: RocePacket,
    pub(super) is_again: bool,
}

impl Sender {
    pub(super) fn new(config: &RoceConfig, flow: u32, peer: HostId, port: u16, bytes: u64) -> Self {
        let packets = match bytes {
            ENDLESS => u64::MAX,
            _ => bytes.div_ceil(config.payload_bytes().into()),
        };
        Self {
            flow,
            peer,
            port,
            bytes,
            packets,
            una: 0,
            next: 0,
            fresh: 0,
            rate: config.dcqcn.map(|dcqcn| Rate::new(dcqcn, config.line_bps)),
            next_at_ps: 0,
            sent_at_ps: 0,
            timeout_at: None,
            retries: 0,
            is_queued: false,
            is_alive: true,
        }
    }

    /// Whether every packet of the flow is acknowledged.
    pub(super) fn is_complete(&self) -> bool {
        self.una >= self.packets
    }

    /// Whether there is a packet to send, apart from the limit of the rate.
    fn has_data(&self, config: &RoceConfig) -> bool {
        self.next < self.packets && self.next - self.una < config.window_packets
    }

    /// Whether the connection has a packet to send and the rate allows it now.
    pub(super) fn may_send(&self, config: &RoceConfig, now: Instant) -> bool {
        self.is_alive && self.has_data(config) && self.next_at_ps <= now.as_nanos() * NS
    }

    /// Returns the time when [`Self::on_timer`] has to be called, or when [`Self::may_send`] may
    /// become true; `None` if there is no such time.
    pub(super) fn deadline(&self, config: &RoceConfig, now: Instant) -> Option<Instant> {
        let rate_at = self.rate.as_ref().and_then(Rate::deadline);
        let waits = self.has_data(config) && self.next_at_ps > now.as_nanos() * NS;
        let next_at = waits.then(|| Instant::from_nanos(self.next_at_ps.div_ceil(NS)));
        rate_at.into_iter().chain(next_at).chain(self.timeout_at).min()
    }

    /// Returns the next packet. May only be called if [`Self::may_send`] returns true.
    pub(super) fn send(&mut self, config: &RoceConfig, now: Instant) -> Outgoing {
        let psn = self.next;
        let full = u64::from(config.payload_bytes());
        let is_last = psn + 1 == self.packets;
        let bytes = if is_last { self.bytes - psn * full } else { full };
        let payload_bytes = u32::try_from(bytes).expect("a packet is below 64 KiB");
        let is_again = psn < self.fresh;
        self.next += 1;
        self.fresh = self.fresh.max(self.next);
        if self.timeout_at.is_none() {
            self.timeout_at = Some(now + config.timeout);
        }
        self.pace(now, payload_bytes + config.header_bytes);
        let packet = RocePacket {
            flow: self.flow,
            kind: RoceKind::Data,
            psn,
            payload_bytes,
            is_first: psn == 0,
            is_last,
        };
        Outgoing { packet, is_again }
    }

    /// Computes the time of the next packet from the rate. A sender that could not send at its time
    /// may catch up by one packet.
    fn pace(&mut self, now: Instant, wire_bytes: u32) {
        let Some(rate) = &mut self.rate else { return };
        rate.on_sent(wire_bytes.into());
        let Some(bps) = rate.limit_bps() else {
            self.next_at_ps = 0;
            return;
        };
        let (now_ps, gap_ps) = (now.as_nanos() * NS, gap_ps(bps, wire_bytes));
        self.sent_at_ps = self.next_at_ps.max(now_ps.saturating_sub(gap_ps));
        self.next_at_ps = self.sent_at_ps + gap_ps;
    }

    /// Computes the time of the next packet again, after a change of the rate.
    fn pace_again(&mut self, config: &RoceConfig) {
        if let Some(rate) = &self.rate
            && self.next_at_ps > 0
        {
            let bps = rate.limit_bps().unwrap_or(config.line_bps as f64);
            self.next_at_ps = self.sent_at_ps + gap_ps(bps, config.packet_bytes);
        }
    }

    /// Records that the receiver has every packet before `psn`. Returns whether the sender did not
    /// have this information before.
    fn advance(&mut self, config: &RoceConfig, now: Instant, psn: u64) -> bool {
        if psn <= self.una || psn > self.fresh {
            return false;
        }
        self.una = psn;
        self.next = self.next.max(psn);
        self.retries = 0;
        self.timeout_at = (self.una < self.fresh).then(|| now + config.timeout);
        true
    }

    pub(super) fn on_ack(&mut self, config: &RoceConfig, now: Instant, psn: u64) {
        self.advance(config, now, psn);
    }

    /// Goes back to the missing packet `psn`: all packets from `psn` on are retransmitted.
    pub(super) fn on_nak(&mut self, config: &RoceConfig, now: Instant, psn: u64) {
        self.advance(config, now, psn);
        if psn == self.una {
            self.next = psn;
        }
    }

    pub(super) fn on_cnp(&mut self, config: &RoceConfig, now: Instant) {
        if let Some(rate) = &mut self.rate {
            rate.on_cnp(now);
            self.pace_again(config);
        }
    }

    /// Processes the timers that are due. Returns whether the retransmission timer was due.
    pub(super) fn on_timer(&mut self, config: &RoceConfig, now: Instant) -> bool {
        if let Some(rate) = &mut self.rate
            && rate.deadline().is_some_and(|at| at <= now)
        {
            rate.on_timer(now);
            self.pace_again(config);
        }
        if self.timeout_at.is_none_or(|at| at > now) {
            return false;
        }
        self.next = self.una;
        self.retries += 1;
        self.timeout_at = Some(now + config.timeout);
        true
    }
}

/// Returns the time that a packet takes at a rate, in picoseconds.
fn gap_ps(bps: f64, wire_bytes: u32) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    let bps = bps as u64;
    serialize_ps(bps.max(1), wire_bytes)
}

/// The receiving end of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Receiver {
    /// Number of the next packet in order. All packets before it have arrived.
    pub(super) expected: u64,
    /// Number of packets that have arrived and are not acknowledged yet.
    unacknowledged: u32,
    /// Whether a packet has arrived too early and a NAK was sent for the missing packet.
    is_refusing: bool,
    notified_at: Option<Instant>,
}

/// Result of the arrival of a data packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Received {
    /// Whether the packet was the next in order, so that its payload reaches the application.
    pub(super) is_taken: bool,
    /// Kind of the reply to be sent; `None` if no reply is required.
    pub(super) reply: Option<RoceKind>,
}

impl Receiver {
    pub(super) fn on_data(&mut self, config: &RoceConfig, packet: &RocePacket) -> Received {
        if packet.psn > self.expected {
            // Only one NAK is sent until the missing packet arrives.
            let reply = (!self.is_refusing).then_some(RoceKind::Nak);
            self.is_refusing = true;
            return Received { is_taken: false, reply };
        }
        if packet.psn < self.expected {
            return Received { is_taken: false, reply: Some(RoceKind::Ack) };
        }
        self.expected += 1;
        self.is_refusing = false;
        self.unacknowledged += 1;
        if !packet.is_last && self.unacknowledged < config.ack_packets {
            return Received { is_taken: true, reply: None };
        }
        self.unacknowledged = 0;
        Received { is_taken: true, reply: Some(RoceKind::Ack) }
    }

    /// Records that a packet with an ECN mark arrived. Returns whether to notify the sender.
    pub(super) fn on_mark(&mut self, gap: Duration, now: Instant) -> bool {
        if self.notified_at.is_some_and(|at| now.since(at) < gap) {
            return false;
        }
        self.notified_at = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 100_000_000_000;

    fn config() -> RoceConfig {
        RoceConfig::of_link(LINE, 1062)
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    fn sender(packets: u64) -> Sender {
        Sender::new(&config(), 7, HostId(1), 50_000, packets * 1000 - 1)
    }

    fn sent(sender: &mut Sender, now: Instant) -> Vec<u64> {
        let mut psns = Vec::new();
        while sender.may_send(&config(), now) {
            psns.push(sender.send(&config(), now).packet.psn);
        }
        psns
    }

    #[test]
    fn one_missing_packet_brings_one_nak_and_all_after_it_again() {
        let (mut sender, mut receiver) = (sender(6), Receiver::default());
        assert_eq!(sent(&mut sender, at(0)), [0, 1, 2, 3, 4, 5]);
        let mut take = |psn: u64| {
            let packet = RocePacket { psn, is_last: psn == 5, ..RocePacket::default() };
            receiver.on_data(&config(), &packet)
        };
        let taken = |reply| Received { is_taken: true, reply };
        let refused = |reply| Received { is_taken: false, reply };
        assert_eq!(take(0), taken(None));
        assert_eq!(take(2), refused(Some(RoceKind::Nak)));
        assert_eq!(take(3), refused(None));
        sender.on_nak(&config(), at(10), 1);
        assert_eq!(sender.una, 1);
        assert!(sender.send(&config(), at(10)).is_again);
        assert_eq!(sent(&mut sender, at(10)), [2, 3, 4, 5]);
        assert_eq!(take(1), taken(None));
        assert_eq!(take(1), refused(Some(RoceKind::Ack)));
        (2..5).for_each(|psn| assert!(take(psn).is_taken));
        assert_eq!(take(5), taken(Some(RoceKind::Ack)));
        sender.on_ack(&config(), at(20), 6);
        assert!(sender.is_complete());
        assert_eq!(sender.deadline(&config(), at(20)), None);
    }

    #[test]
    fn last_packet_carries_what_is_left() {
        let mut sender = sender(3);
        let all: Vec<_> = (0..3).map(|_| sender.send(&config(), at(0)).packet).collect();
        assert_eq!(all.iter().map(|p| p.payload_bytes).collect::<Vec<_>>(), [1000, 1000, 999]);
        assert_eq!(all.iter().map(|p| p.is_last).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn silence_sends_everything_unacknowledged_again() {
        let mut sender = sender(3);
        sent(&mut sender, at(0));
        sender.on_ack(&config(), at(100), 1);
        let due = at(100) + config().timeout;
        assert_eq!(sender.deadline(&config(), at(100)), Some(due));
        assert!(!sender.on_timer(&config(), at(200)));
        assert!(sender.on_timer(&config(), due));
        assert_eq!((sender.retries, sent(&mut sender, due)), (1, vec![1, 2]));
    }

    #[test]
    fn notifications_space_packets_by_the_rate() {
        let mut sender = sender(100);
        sender.send(&config(), at(0));
        sender.on_cnp(&config(), at(1));
        assert!(sender.may_send(&config(), at(1)), "there was no limit when it last sent");
        sender.send(&config(), at(1));
        // A packet of 1062 bytes takes 169.92 ns at 50 Gb/s, and the connection was one packet
        // behind.
        sender.send(&config(), at(1));
        assert!(!sender.may_send(&config(), at(1)));
        assert_eq!(sender.deadline(&config(), at(1)), Some(Instant::from_nanos(1170)));
        assert!(sender.may_send(&config(), Instant::from_nanos(1170)));
    }

    #[test]
    fn marks_are_answered_once_in_50_us() {
        let mut receiver = Receiver::default();
        let gap = config().cnp_gap;
        let answers: Vec<u64> =
            (0..120).step_by(10).filter(|us| receiver.on_mark(gap, at(*us))).collect();
        assert_eq!(answers, [0, 50, 100]);
    }
}
