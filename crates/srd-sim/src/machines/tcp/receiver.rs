//! The receiving half of a connection: reassembly, SACK and reports of duplicates (RFC 2018, RFC
//! 2883), delayed acknowledgements (RFC 5681 section 4.2, with Linux's quick mode), ECN echo (RFC
//! 3168, RFC 8257).
//!
//! The application reads data at once, so the receive window never closes. The sender's window
//! limits the state: there is at most one range for every two segments of the window.

use std::collections::VecDeque;

use srd_proto::time::{Duration, Instant};

use super::config::{Congestion, TcpConfig};
use super::congestion_control::dctcp::EchoState;
use super::rto::deadline;
use super::segment::{
    ByteRange, FLAG_ACK, FLAG_CWR, FLAG_DSACK, FLAG_ECE, FLAG_PSH, FLAG_RESUMED, SACK_BLOCKS_MAX,
    TcpSegment,
};

/// Largest number of recently changed ranges that are remembered, in order of age. Linux remembers
/// four.
const RECENT_MAX: usize = 4;

/// The values of [`TcpConfig`] that a receiver needs.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    mss_bytes: u64,
    ack_delay: Duration,
    timer_tick: Duration,
    ack_quick: u32,
    quick_gap: Duration,
    exact_echo: bool,
    interactive: bool,
    has_writes: bool,
}

impl From<&TcpConfig> for ReceiverConfig {
    fn from(config: &TcpConfig) -> Self {
        Self {
            mss_bytes: u64::from(config.mss_bytes()),
            ack_delay: config.ack_delay,
            timer_tick: config.timer_tick,
            ack_quick: if config.interactive { 0 } else { config.ack_quick },
            quick_gap: config.rto_min + config.rtt_assumed,
            exact_echo: config.congestion == Congestion::Dctcp,
            interactive: config.interactive,
            has_writes: config.write_bytes > 0,
        }
    }
}

/// State of the receiving half of a connection.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    flow: u32,
    // Offset of the first byte that has not arrived; every byte before it has arrived.
    next: u64,
    // Cumulative point of the last acknowledgement that was sent.
    acked: u64,
    // Data that arrived beyond `next`, as ranges in ascending order with gaps between them.
    ranges: Vec<ByteRange>,
    // Starts of the ranges that changed most recently, the latest first.
    recent: [u64; RECENT_MAX],
    recent_count: usize,
    duplicate: Option<ByteRange>,
    // Length of the stream; `None` until a segment with PSH has arrived.
    end: Option<u64>,
    timestamp_ns: u64,
    // Time when the latest data segment arrived.
    arrived_at: Instant,
    quick: u32,
    ack_at: Option<Instant>,
    echo: EchoState,
    // RFC 3168: whether acknowledgements echo congestion. Set until the sender has confirmed a
    // reduction of its window.
    echo_latched: bool,
}

impl Receiver {
    /// Creates the receiving half of a connection from the first segment that arrived.
    pub fn new(config: ReceiverConfig, first: &TcpSegment) -> Self {
        Self {
            config,
            flow: first.flow,
            next: 0,
            acked: 0,
            ranges: Vec::new(),
            recent: [0; RECENT_MAX],
            recent_count: 0,
            duplicate: None,
            end: None,
            timestamp_ns: 0,
            arrived_at: Instant::FAR_FUTURE,
            quick: if first.has(FLAG_RESUMED) { 0 } else { config.ack_quick },
            ack_at: None,
            echo: EchoState::default(),
            echo_latched: false,
        }
    }

    /// Returns the time when a delayed acknowledgement must be sent; `None` if no acknowledgement
    /// is delayed.
    pub const fn deadline(&self) -> Option<Instant> {
        self.ack_at
    }

    /// Returns the offset of the first byte that has not arrived.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Whether the whole stream has arrived and has been acknowledged.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.next) && self.acked == self.next
    }

    /// Processes a data segment, and appends the acknowledgements that it requires to `acks`: two
    /// at most. Returns the range of bytes that has become deliverable.
    pub fn on_segment(
        &mut self,
        now: Instant,
        segment: &TcpSegment,
        marked: bool,
        acks: &mut VecDeque<TcpSegment>,
    ) -> ByteRange {
        if now.since(self.arrived_at) > self.config.quick_gap {
            self.quick = self.config.ack_quick; // the sender's window starts again
        }
        self.arrived_at = now;
        let mut at_once = self.take_mark(now, segment, marked, acks);
        if segment.seq <= self.acked {
            self.timestamp_ns = segment.timestamp_ns; // RFC 7323 section 4.3
        }
        let range = ByteRange { start: segment.seq, end: segment.end() };
        if segment.has(FLAG_PSH) {
            self.end = Some(range.end);
        }
        let before = self.next;
        let gaps = !self.ranges.is_empty();
        if range.start < self.next {
            self.duplicate = Some(ByteRange { start: range.start, end: range.end.min(self.next) });
            self.quick = self.config.ack_quick;
            at_once = true;
        }
        if range.end > self.next {
            if range.start <= self.next {
                self.advance(range.end);
            } else {
                self.keep(range);
            }
        }
        at_once |= gaps || !self.ranges.is_empty();
        // Linux sends an acknowledgement when the application has read all data of a segment with
        // PSH, which is the last segment of a write.
        let is_small = u64::from(segment.payload_bytes) < self.config.mss_bytes;
        let is_pushed = segment.has(FLAG_PSH) || self.config.has_writes && is_small;
        at_once |= is_pushed && self.next == range.end && !self.config.interactive;
        if at_once || self.quick > 0 || self.next - self.acked > self.config.mss_bytes {
            acks.push_back(self.acknowledge(now));
        } else if self.ack_at.is_none() {
            self.ack_at = Some(deadline(now, self.config.ack_delay, self.config.timer_tick));
        }
        ByteRange { start: before, end: self.next }
    }

    // Processes the ECN mark of a data segment. Returns whether the mark requires an
    // acknowledgement at once.
    fn take_mark(
        &mut self,
        now: Instant,
        segment: &TcpSegment,
        marked: bool,
        acks: &mut VecDeque<TcpSegment>,
    ) -> bool {
        if !self.config.exact_echo {
            self.echo_latched = marked || self.echo_latched && !segment.has(FLAG_CWR);
            return false;
        }
        let old = self.echo;
        let changed = self.echo.on_segment(marked);
        if changed && self.ack_at.is_some() {
            let new = std::mem::replace(&mut self.echo, old);
            acks.push_back(self.acknowledge(now));
            self.echo = new;
        }
        changed
    }

    fn advance(&mut self, end: u64) {
        self.next = end;
        let reached = self.ranges.iter().take_while(|range| range.start <= end).count();
        for range in self.ranges.drain(..reached) {
            self.next = self.next.max(range.end);
        }
        self.forget_recent(|start, next| start < next);
    }

    // Adds a range beyond `next`, and merges it with ranges that it touches.
    fn keep(&mut self, range: ByteRange) {
        let first = self.ranges.partition_point(|known| known.end < range.start);
        let mut merged = range;
        let mut last = first;
        while let Some(known) = self.ranges.get(last).filter(|known| known.start <= range.end) {
            if known.contains(range) {
                self.duplicate = Some(range);
            }
            merged.start = merged.start.min(known.start);
            merged.end = merged.end.max(known.end);
            last += 1;
        }
        if last == first {
            self.ranges.insert(first, merged);
        } else {
            self.ranges[first] = merged;
            self.ranges.drain(first + 1..last);
        }
        // The merged range replaces the ranges that it contains, and becomes the most recent range.
        let mut kept = [merged.start; RECENT_MAX];
        let mut count = 1;
        for &start in &self.recent[..self.recent_count] {
            if !(merged.start..merged.end).contains(&start) && count < RECENT_MAX {
                kept[count] = start;
                count += 1;
            }
        }
        self.recent = kept;
        self.recent_count = count;
    }

    fn forget_recent(&mut self, gone: impl Fn(u64, u64) -> bool) {
        let mut count = 0;
        for index in 0..self.recent_count {
            let start = self.recent[index];
            if !gone(start, self.next) {
                self.recent[count] = start;
                count += 1;
            }
        }
        self.recent_count = count;
    }

    /// Returns the delayed acknowledgement. Called when its deadline has come.
    pub fn on_timer(&mut self, now: Instant) -> TcpSegment {
        self.acknowledge(now)
    }

    fn acknowledge(&mut self, now: Instant) -> TcpSegment {
        self.acked = self.next;
        self.ack_at = None;
        self.quick = self.quick.saturating_sub(1);
        let echo = if self.config.exact_echo { self.echo.marked } else { self.echo_latched };
        let mut segment = TcpSegment {
            flow: self.flow,
            ack: self.next,
            flags: FLAG_ACK | if echo { FLAG_ECE } else { 0 },
            timestamp_ns: now.as_nanos(),
            timestamp_echo_ns: self.timestamp_ns,
            ..TcpSegment::default()
        };
        if let Some(duplicate) = self.duplicate.take()
            && segment.push_sack(duplicate)
        {
            segment.flags |= FLAG_DSACK;
        }
        for &start in &self.recent[..self.recent_count.min(SACK_BLOCKS_MAX)] {
            let index = self.ranges.partition_point(|range| range.start < start);
            segment.push_sack(self.ranges[index]);
        }
        segment
    }
}

/// Returns the reply to a duplicate segment of a stream of `end` bytes that has arrived completely.
pub fn answer_duplicate(end: u64, duplicate: &TcpSegment) -> TcpSegment {
    let mut segment = TcpSegment {
        flow: duplicate.flow,
        ack: end,
        flags: FLAG_ACK | FLAG_DSACK,
        timestamp_echo_ns: duplicate.timestamp_ns,
        ..TcpSegment::default()
    };
    segment.push_sack(ByteRange { start: duplicate.seq, end: duplicate.end() });
    segment
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
