//! Segments that arrive shortly after each other and reach the guest's TCP together. The guest's
//! driver delays interrupts, and its kernel joins the segments that have arrived by then (GRO).
//!
//! Bound: [`OPEN_MAX`] connections, and one super-packet for each connection.

use std::collections::VecDeque;

use srd_proto::{Duration, Instant};

use crate::machines::express::frame::Framed;
use crate::machines::tcp::segment::FLAG_PSH;

/// Time from a packet to the interrupt of the guest: that of the ENA driver on EC2.
pub(super) const INTERRUPT: Duration = Duration::from_micros(20);
/// Largest number of connections with segments that wait for the interrupt. Linux has as many
/// buckets in each receive queue.
pub(super) const OPEN_MAX: usize = 64;

/// Segments that wait for the interrupt, and segments that are ready for the guest.
#[derive(Debug)]
pub(super) struct Joins {
    mss_bytes: u32,
    open: Vec<Framed>,
    due: Option<Instant>,
    ready: VecDeque<Framed>,
}

impl Joins {
    pub(super) fn new(mss_bytes: u32) -> Self {
        Self { mss_bytes, open: Vec::new(), due: None, ready: VecDeque::new() }
    }

    /// Adds a segment that has arrived. A segment without data or with PSH is ready at once, after
    /// the earlier segments of its connection.
    pub(super) fn push(&mut self, now: Instant, next: Framed) {
        let of = |framed: &Framed| (framed.src, framed.dst, framed.ports);
        if let Some(at) = self.open.iter().position(|open| of(open) == of(&next)) {
            let joined = self.open[at].join(&next, self.mss_bytes);
            if joined && !next.segment.has(FLAG_PSH) {
                return;
            }
            self.ready.push_back(self.open.remove(at));
            if joined {
                return;
            }
        }
        if next.segment.payload_bytes == 0 || next.segment.has(FLAG_PSH) {
            self.ready.push_back(next);
            return;
        }
        if self.open.len() == OPEN_MAX {
            self.ready.push_back(self.open.remove(0));
        }
        if self.open.is_empty() {
            self.due = Some(now + INTERRUPT);
        }
        self.open.push(next);
    }

    /// Returns the time when [`Joins::on_timer`] has to be called; `None` if no segment waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.filter(|_| !self.open.is_empty())
    }

    /// Makes all waiting segments ready if the interrupt is due.
    pub(super) fn on_timer(&mut self, now: Instant) {
        if self.due().is_some_and(|due| due <= now) {
            self.ready.extend(self.open.drain(..));
        }
    }

    /// Removes and returns the next segment that is ready for the guest.
    pub(super) fn next(&mut self) -> Option<Framed> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use srd_proto::transmit::Ecn;

    use super::*;
    use crate::engine::node::HostId;
    use crate::machines::tcp::TcpSegment;

    const MSS: u32 = 1000;

    fn segment(port: u16, seq: u64, payload_bytes: u32, flags: u8) -> Framed {
        Framed {
            src: HostId(1),
            dst: HostId(2),
            ports: (port, 80),
            ecn: Ecn::NotEct,
            segment: TcpSegment { seq, payload_bytes, flags, ..TcpSegment::default() },
        }
    }

    fn ready(joins: &mut Joins) -> Vec<(u16, u64, u32)> {
        let next = std::iter::from_fn(|| joins.next());
        next.map(|of| (of.ports.0, of.segment.seq, of.segment.payload_bytes)).collect()
    }

    #[test]
    fn segments_that_follow_each_other_are_one_when_the_interrupt_comes() {
        let (mut joins, start) = (Joins::new(MSS), Instant::ZERO);
        for n in 0..3 {
            joins.push(start + INTERRUPT.over(4).times(n), segment(1, n * 1000, MSS, 0));
            joins.push(start + INTERRUPT.over(4).times(n), segment(2, n * 1000, MSS, 0));
        }
        assert_eq!((joins.due(), ready(&mut joins)), (Some(start + INTERRUPT), vec![]));
        joins.on_timer(start + INTERRUPT);
        assert_eq!(ready(&mut joins), [(1, 0, 3000), (2, 0, 3000)]);
        assert_eq!(joins.due(), None);
    }

    #[test]
    fn the_last_segment_of_a_stream_and_one_behind_a_hole_wait_for_nothing() {
        let (mut joins, now) = (Joins::new(MSS), Instant::ZERO);
        joins.push(now, segment(1, 0, MSS, 0));
        joins.push(now, segment(1, 1000, 500, FLAG_PSH));
        assert_eq!(ready(&mut joins), [(1, 0, 1500)]);
        joins.push(now, segment(1, 0, MSS, 0));
        joins.push(now, segment(1, 5000, MSS, 0));
        assert_eq!(ready(&mut joins), [(1, 0, 1000)]);
        joins.push(now, segment(1, 0, 0, 0));
        assert_eq!(ready(&mut joins), [(1, 5000, 1000), (1, 0, 0)]);
    }

    #[test]
    fn connections_beyond_the_bound_push_the_oldest_out() {
        let mut joins = Joins::new(MSS);
        for port in 0..=u16::try_from(OPEN_MAX).unwrap() {
            joins.push(Instant::ZERO, segment(port, 0, MSS, 0));
        }
        assert_eq!(ready(&mut joins), [(0, 0, 1000)]);
    }
}
