//! The sending half of a connection: choice of the next segment, and the timers. Acknowledgements
//! are processed in `ack.rs`; recovery, and the undoing of unnecessary recoveries, is in
//! `sender/recovery.rs`. The three files follow Linux's `tcp_output.c`, `tcp_timer.c` and
//! `tcp_input.c` so closely that they can be compared.
//!
//! A connection has one timer for three purposes, as in Linux: retransmission, tail probe, reorder
//! window.

pub mod recovery;

use srd_proto::time::{Duration, Instant};

use super::config::{Nagle, TcpConfig};
use super::congestion_control::congestion::Controller;
use super::congestion_control::window::Window;
use super::rack::{Circumstances, Rack};
use super::rto::{RttEstimator, deadline};
use super::scoreboard::Scoreboard;
use super::segment::{FLAG_ACK, FLAG_CWR, FLAG_PSH, FLAG_RESUMED, FLAG_SYN, TcpSegment};
use super::writes::Writes;
use recovery::{Phase, Reduction, Undo};

/// Purpose for which the timer of a connection is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// Retransmission timeout: no new data was acknowledged for this time.
    Retransmit,
    /// Tail probe (RFC 8985): the last segments may be lost.
    Probe,
    /// End of the reorder window of an earlier segment.
    Reorder,
}

/// A tail probe that is in flight (RFC 8985 section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Probe {
    /// End of the data that was sent before or with the probe, as a stream offset.
    pub(super) end: u64,
    /// Whether the probe retransmits a segment. Otherwise it is a new segment.
    pub(super) resent: bool,
}

/// Use of the congestion window: whether the window, and not the application, limits sending (RFC
/// 7661, Linux's `tcp_cwnd_validate`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    limited: bool,
    outstanding_max: u32,
    round_end: u64,
}

/// Progress of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// A SYN has to be sent, for the first time or after a timeout.
    Due,
    /// A SYN was sent at this time, and the reply is missing.
    Sent(Instant),
    /// The connection is established.
    Done,
}

/// Result of the timer of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fired {
    /// The connection goes on.
    Alive,
    /// The connection failed after too many timeouts in a row.
    Dead,
}

/// A segment that the sender sends now.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The segment that is sent.
    pub segment: TcpSegment,
    /// Whether the segment is a retransmission.
    pub resent: bool,
}

/// State of the sending half of a connection.
#[derive(Clone, Debug)]
pub struct Sender {
    pub(super) config: TcpConfig,
    pub(super) flow: u32,
    /// Length of the stream in bytes.
    total: u64,
    writes: Writes,
    /// End of the last new segment below the full size, as a stream offset.
    small_end: u64,
    /// Offset of the first unacknowledged byte.
    pub(super) una: u64,
    /// Offset of the next byte to send for the first time.
    pub(super) nxt: u64,
    pub(super) board: Scoreboard,
    pub(super) rack: Rack,
    pub(super) rtt: RttEstimator,
    pub(super) window: Window,
    pub(super) controller: Controller,
    pub(super) phase: Phase,
    /// Stream offset whose acknowledgement ends the recovery.
    pub(super) recovery_point: u64,
    pub(super) reduction: Reduction,
    pub(super) undo: Undo,
    /// Whether F-RTO (RFC 5682) may still find that the timeout was unnecessary.
    pub(super) timeout_doubted: bool,
    /// For F-RTO: whether new data is sent before segments marked lost, until the next
    /// acknowledgement.
    pub(super) new_data_first: bool,
    pub(super) probe: Option<Probe>,
    probe_due: bool,
    pub(super) timer: Option<(Timer, Instant)>,
    /// Number of timeouts in a row.
    pub(super) retries: u32,
    usage: Usage,
    pub(super) reduced_unsaid: bool,
    opening: Opening,
    // Whether the connection carried another flow less than a timeout before this flow.
    resumed: bool,
    sent_at: Instant,
    /// Number of timeouts since the connection was created.
    pub(super) timeouts: u64,
}

impl Sender {
    /// Creates a connection that carries `flow`, with `bytes` to send.
    pub fn new(config: &TcpConfig, flow: u32, bytes: u64, now: Instant) -> Self {
        let mut rtt = RttEstimator::new(config);
        if !config.handshake {
            rtt.assume(config.rtt_assumed);
        }
        Self {
            config: *config,
            flow,
            total: bytes,
            writes: Writes::new(config, bytes, now),
            small_end: 0,
            una: 0,
            nxt: 0,
            board: Scoreboard::default(),
            rack: Rack::default(),
            rtt,
            window: Window::new(config.window_initial_segments),
            controller: Controller::new(config),
            phase: Phase::Open,
            recovery_point: 0,
            reduction: Reduction::default(),
            undo: Undo::default(),
            timeout_doubted: false,
            new_data_first: false,
            probe: None,
            probe_due: false,
            timer: None,
            retries: 0,
            usage: Usage::default(),
            reduced_unsaid: false,
            opening: if config.handshake { Opening::Due } else { Opening::Done },
            resumed: false,
            sent_at: now,
            timeouts: 0,
        }
    }

    /// Starts another flow on this idle connection. If the connection was idle for more than a
    /// timeout, its window restarts from the initial window (Linux's `tcp_cwnd_restart`).
    pub fn reopen(&mut self, flow: u32, bytes: u64, now: Instant) {
        debug_assert!(self.is_complete(), "a connection is reused when it is idle");
        let idle = now.since(self.sent_at);
        self.flow = flow;
        self.total = bytes;
        self.writes = Writes::new(&self.config, bytes, now);
        self.small_end = 0;
        self.una = 0;
        self.nxt = 0;
        self.board.clear();
        self.rack.rebase();
        self.rtt.rebase();
        self.controller.rebase(now);
        self.controller.on_resumed(now, idle);
        if matches!(self.phase, Phase::Reduced | Phase::Recovery) {
            self.window.segments = self.window.threshold;
        }
        self.phase = Phase::Open;
        self.recovery_point = 0;
        self.undo = Undo::default();
        self.timeout_doubted = false;
        self.new_data_first = false;
        self.probe = None;
        self.probe_due = false;
        self.timer = None;
        self.retries = 0;
        self.usage = Usage::default();
        let rto = self.rtt.rto().as_nanos().max(1);
        self.resumed = idle.as_nanos() <= rto;
        if !self.resumed {
            let kept = self.window.segments / 2 + self.window.segments / 4;
            self.window.threshold = self.window.threshold.max(kept);
            let restart = self.config.window_initial_segments.min(self.window.segments);
            let halvings = u32::try_from((idle.as_nanos() - 1) / rto).unwrap_or(31).min(31);
            self.window.segments = (self.window.segments >> halvings).max(restart);
            self.window.clear_credit();
        }
    }

    /// Whether every byte of the flow is acknowledged.
    pub const fn is_complete(&self) -> bool {
        self.una == self.total
    }

    /// Returns the flow that the connection carries.
    pub const fn flow(&self) -> u32 {
        self.flow
    }

    /// Returns the offset of the first unacknowledged byte.
    pub const fn una(&self) -> u64 {
        self.una
    }

    /// Returns the congestion window, in segments.
    pub const fn window_segments(&self) -> u32 {
        self.window.segments
    }

    /// Returns the number of retransmission timeouts since the connection was created.
    pub const fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// Returns the time when [`Sender::on_timer`] has to be called; `None` if no timer is set.
    pub fn deadline(&self) -> Option<Instant> {
        let timer_at = self.timer.map(|(_, at)| at);
        timer_at.into_iter().chain(self.writes.next_at()).min()
    }

    /// Returns the next segment that the window allows to send; `None` if there is no such segment.
    pub fn poll(&mut self, now: Instant) -> Option<Outgoing> {
        self.writes.advance(now);
        if self.opening != Opening::Done {
            return self.poll_opening(now);
        }
        if self.probe_due {
            self.probe_due = false;
            return self.send_probe(now);
        }
        if self.board.in_flight() >= self.window.segments {
            return None;
        }
        match self.board.next_lost().filter(|_| !self.new_data_first) {
            Some(number) => Some(self.resend(number, now)),
            None if self.is_held() => None,
            None => self.send_new(now),
        }
    }

    /// Whether Nagle's rule forbids the next new segment for now.
    fn is_held(&self) -> bool {
        let is_small = self.next_bytes().is_some_and(|bytes| bytes < self.config.mss_bytes());
        is_small
            && match self.config.nagle {
                Nagle::Off => false,
                Nagle::Linux => self.small_end > self.una,
                Nagle::Rfc896 => self.nxt > self.una,
            }
    }

    fn poll_opening(&mut self, now: Instant) -> Option<Outgoing> {
        if self.opening != Opening::Due {
            return None;
        }
        let resent = self.retries > 0;
        self.opening = Opening::Sent(now);
        self.timer = Some((Timer::Retransmit, self.after(now, self.rtt.rto())));
        let segment = TcpSegment { flags: FLAG_SYN, ..self.segment(0, 0, now) };
        Some(Outgoing { segment, resent })
    }

    /// Processes the peer's reply to the SYN: the connection is established.
    pub fn on_opened(&mut self, now: Instant) {
        if let Opening::Sent(at) = self.opening {
            if self.retries == 0 {
                self.rtt.on_sample(now.since(at), 0, 0);
            }
            self.opening = Opening::Done;
            self.retries = 0;
            self.timer = None;
        }
    }

    fn segment(&self, seq: u64, payload_bytes: u32, now: Instant) -> TcpSegment {
        let end = seq + u64::from(payload_bytes);
        // Until the peer has acknowledged data, every segment may open the connection.
        let mut flags = if self.una == 0 { FLAG_SYN } else { FLAG_ACK };
        if self.una == 0 && self.resumed {
            flags |= FLAG_RESUMED;
        }
        if end == self.total {
            flags |= FLAG_PSH;
        }
        let timestamp_ns = now.as_nanos();
        TcpSegment {
            flow: self.flow,
            seq,
            payload_bytes,
            flags,
            timestamp_ns,
            ..Default::default()
        }
    }

    fn has_new(&self) -> bool {
        self.next_bytes().is_some()
    }

    // Returns the length of the next new segment; `None` if the application has written no more
    // data or the peer's window is full.
    fn next_bytes(&self) -> Option<u32> {
        let mss = u64::from(self.config.mss_bytes());
        let bytes = mss.min(self.writes.written() - self.nxt);
        let fits = self.nxt - self.una + bytes <= self.config.window_bytes_max;
        (bytes > 0 && fits).then(|| u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    pub(super) fn may_send_new(&self) -> bool {
        self.has_new()
    }

    fn send_new(&mut self, now: Instant) -> Option<Outgoing> {
        let bytes = self.next_bytes()?;
        let mut segment = self.segment(self.nxt, bytes, now);
        if std::mem::take(&mut self.reduced_unsaid) {
            segment.flags |= FLAG_CWR;
        }
        let first = self.board.outstanding() == 0;
        self.board.push(self.nxt, bytes, now);
        self.nxt += u64::from(bytes);
        if bytes < self.config.mss_bytes() {
            self.small_end = self.nxt;
        }
        self.sent_at = now;
        self.reduction.on_sent();
        self.note_usage();
        if first || matches!(self.timer, Some((Timer::Probe, _))) {
            self.rearm_retransmit(now);
        }
        self.schedule_probe(now);
        Some(Outgoing { segment, resent: false })
    }

    fn resend(&mut self, number: u32, now: Instant) -> Outgoing {
        let record = *self.board.record(number);
        self.board.resend(number, now);
        self.undo.on_resent(now);
        self.reduction.on_sent();
        self.sent_at = now;
        let is_head = self.board.head().is_some_and(|head| head.seq == record.seq);
        if is_head && !matches!(self.timer, Some((Timer::Reorder, _))) {
            self.timer = Some((Timer::Retransmit, self.after(now, self.rtt.rto())));
        }
        Outgoing { segment: self.segment(record.seq, record.bytes, now), resent: true }
    }

    fn send_probe(&mut self, now: Instant) -> Option<Outgoing> {
        let outgoing = if self.has_new() {
            self.send_new(now)
        } else {
            let number = self.board.tail()?;
            if self.board.is_sacked(number) {
                return None;
            }
            Some(self.resend(number, now))
        };
        if let Some(sent) = &outgoing {
            self.probe = Some(Probe { end: self.nxt, resent: sent.resent });
            self.timer = None; // the timeout counts from the probe
        }
        self.rearm_retransmit(now);
        outgoing
    }

    // Linux's tcp_cwnd_validate: records how much of the window is used.
    fn note_usage(&mut self) {
        let limited = self.board.in_flight() >= self.window.segments;
        let outstanding = self.board.outstanding();
        let usage = &mut self.usage;
        let more = !usage.limited && outstanding > usage.outstanding_max;
        if self.una >= usage.round_end || limited || more {
            *usage = Usage { limited, outstanding_max: outstanding, round_end: self.nxt };
        }
    }

    /// Whether the window may grow. It may grow only while it limits sending.
    pub(super) fn is_window_limited(&self) -> bool {
        if self.window.in_slow_start() {
            return self.window.segments < 2 * self.usage.outstanding_max;
        }
        self.usage.limited
    }

    pub(super) fn circumstances(&self) -> Circumstances {
        Circumstances {
            rtt_min: self.rtt.min().unwrap_or_default(),
            srtt: self.rtt.srtt().unwrap_or_default(),
            recovering: matches!(self.phase, Phase::Recovery | Phase::Loss),
            sacked: self.board.sacked(),
        }
    }

    fn after(&self, now: Instant, delay: Duration) -> Instant {
        deadline(now, delay, self.config.timer_tick)
    }

    /// Sets the timer for a tail probe, or for the retransmission timeout if a probe is not
    /// allowed.
    pub(super) fn rearm(&mut self, now: Instant) {
        if !self.schedule_probe(now) {
            self.rearm_retransmit(now);
        }
    }

    pub(super) fn rearm_retransmit(&mut self, now: Instant) {
        let Some(head) = self.board.head() else {
            self.timer = None;
            return;
        };
        let rto = self.rtt.rto();
        let delay = match self.timer {
            // The timeout counts from the transmission of the head, so the time of the probe's
            // timer or of the reorder timer is subtracted.
            Some((Timer::Probe | Timer::Reorder, _)) => {
                (head.sent_at + rto).since(now).max(Duration::from_micros(1))
            }
            _ => rto,
        };
        self.timer = Some((Timer::Retransmit, self.after(now, delay)));
    }

    // RFC 8985 section 7.2, with Linux's additional time. Returns false if a probe must not be
    // scheduled.
    fn schedule_probe(&mut self, now: Instant) -> bool {
        let Some(head) = self.board.head() else {
            return false;
        };
        if !self.config.tail_probe || !matches!(self.phase, Phase::Open | Phase::Reduced) {
            return false;
        }
        let mut delay = match self.rtt.srtt() {
            // The acknowledgement of a single segment may be delayed.
            Some(srtt) if self.board.outstanding() == 1 => srtt.times(2) + self.rtt.rto_min(),
            Some(srtt) => srtt.times(2) + self.config.timer_floor,
            None => self.config.rto_initial,
        };
        let until_timeout = (head.sent_at + self.rtt.rto()).since(now);
        if until_timeout > Duration::ZERO {
            delay = delay.min(until_timeout);
        }
        self.timer = Some((Timer::Probe, self.after(now, delay)));
        true
    }

    pub(super) fn arm_reorder(&mut self, now: Instant, wait: Duration) {
        let delay = wait + self.config.timer_floor;
        self.timer = Some((Timer::Reorder, self.after(now, delay)));
    }

    /// Processes the timer if it is due.
    pub fn on_timer(&mut self, now: Instant) -> Fired {
        self.writes.advance(now);
        let Some((timer, at)) = self.timer else {
            return Fired::Alive;
        };
        if at > now {
            return Fired::Alive;
        }
        self.timer = None;
        if let Opening::Sent(_) = self.opening {
            self.opening = Opening::Due;
            return self.on_timeout();
        }
        match timer {
            Timer::Retransmit => {
                if self.board.outstanding() == 0 {
                    return Fired::Alive;
                }
                self.enter_loss(now);
                let fired = self.on_timeout();
                self.timer = Some((Timer::Retransmit, self.after(now, self.rtt.rto())));
                fired
            }
            Timer::Probe => {
                self.probe_due = self.probe.is_none();
                if !self.probe_due {
                    self.timer = Some((timer, at)); // the elapsed time of this timer counts
                }
                self.rearm_retransmit(now);
                Fired::Alive
            }
            Timer::Reorder => {
                self.timer = Some((timer, at));
                self.on_reorder_timer(now);
                Fired::Alive
            }
        }
    }

    fn on_timeout(&mut self) -> Fired {
        self.timeouts += 1;
        self.retries += 1;
        self.rtt.back_off();
        if self.retries > self.config.retries_max { Fired::Dead } else { Fired::Alive }
    }
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
