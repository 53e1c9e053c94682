//! The congestion window and the closed set of algorithms that move it. All windows are in
//! segments, as in Linux.

use srd_proto::time::{Duration, Instant};

use super::config::{Congestion, TcpConfig};
use super::cubic::Cubic;
use super::dctcp::Dctcp;

/// A threshold that slow start does not reach.
pub const THRESHOLD_INFINITE: u32 = u32::MAX >> 1;
/// No reduction goes below this.
pub const WINDOW_MIN: u32 = 2;

/// The window and its threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Congestion window.
    pub segments: u32,
    /// Slow-start threshold.
    pub threshold: u32,
    /// Acknowledged segments towards the next increase.
    pub(super) credit: u32,
}

impl Window {
    /// The initial window, in slow start.
    pub const fn new(segments: u32) -> Self {
        Self { segments, threshold: THRESHOLD_INFINITE, credit: 0 }
    }

    /// Whether the window is below the threshold.
    pub const fn in_slow_start(&self) -> bool {
        self.segments < self.threshold
    }

    /// Grows by the acknowledged segments, to the threshold at most; returns those left over.
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let grown = (self.segments + acked).min(self.threshold);
        let used = grown - self.segments;
        self.segments = grown;
        acked - used
    }

    /// Grows by one segment for every `per` acknowledged.
    pub fn avoid(&mut self, per: u32, acked: u32) {
        // The divisor may have shrunk below the credit since the last call.
        if self.credit >= per {
            self.credit = 0;
            self.segments += 1;
        }
        self.credit += acked;
        if self.credit >= per {
            self.segments += self.credit / per;
            self.credit %= per;
        }
    }

    /// Forgets progress towards the next increase.
    pub fn clear_credit(&mut self) {
        self.credit = 0;
    }
}

/// A round-trip sample and where the stream stands.
#[derive(Clone, Copy, Debug)]
pub struct RttSample {
    /// When it was taken.
    pub now: Instant,
    /// The round trip of the latest segment acknowledged.
    pub rtt: Duration,
    /// The first unacknowledged byte.
    pub una: u64,
    /// The next byte to be sent.
    pub nxt: u64,
}

/// What an acknowledgement says about marks.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// Segments it delivers.
    pub delivered: u32,
    /// Whether it echoes congestion.
    pub echo: bool,
    /// The first unacknowledged byte.
    pub una: u64,
    /// The next byte to be sent.
    pub nxt: u64,
}

/// The algorithm and its state.
#[derive(Clone, Copy, Debug)]
pub enum Controller {
    /// NewReno.
    Reno,
    /// CUBIC.
    Cubic(Cubic),
    /// DCTCP.
    Dctcp(Dctcp),
}

impl Controller {
    /// The algorithm that the configuration names, fresh.
    pub fn new(config: &TcpConfig) -> Self {
        match config.congestion {
            Congestion::Reno => Self::Reno,
            Congestion::Cubic => Self::Cubic(Cubic::new(config.hystart)),
            Congestion::Dctcp => Self::Dctcp(Dctcp::default()),
        }
    }

    /// Takes a round-trip sample; may end slow start.
    pub fn on_rtt(&mut self, window: &mut Window, sample: &RttSample) {
        if let Self::Cubic(cubic) = self {
            cubic.on_rtt(window, sample);
        }
    }

    /// Takes note of marks, or of their absence.
    pub fn on_marks(&mut self, marks: &Marks) {
        if let Self::Dctcp(dctcp) = self {
            dctcp.on_marks(marks);
        }
    }

    /// Grows the window after `acked` segments were delivered while it was the limit.
    pub fn grow(&mut self, window: &mut Window, now: Instant, acked: u32) {
        let mut acked = acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
            if acked == 0 {
                return;
            }
        }
        let per = match self {
            Self::Reno | Self::Dctcp(_) => window.segments,
            Self::Cubic(cubic) => cubic.segments_per_increase(window.segments, now, acked),
        };
        window.avoid(per, acked);
    }

    /// The threshold after a loss.
    pub fn threshold_on_loss(&mut self, segments: u32) -> u32 {
        match self {
            Self::Cubic(cubic) => cubic.threshold_on_loss(segments),
            Self::Reno | Self::Dctcp(_) => segments / 2,
        }
        .max(WINDOW_MIN)
    }

    /// The threshold after marks alone.
    pub fn threshold_on_marks(&mut self, segments: u32) -> u32 {
        match self {
            Self::Dctcp(dctcp) => dctcp.threshold_on_marks(segments).max(WINDOW_MIN),
            Self::Reno | Self::Cubic(_) => self.threshold_on_loss(segments),
        }
    }

    /// Takes note of a retransmission timeout.
    pub fn on_timeout(&mut self, now: Instant, nxt: u64) {
        if let Self::Cubic(cubic) = self {
            cubic.on_timeout(now, nxt);
        }
    }

    /// Takes note that sending resumes after `idle` without anything in flight.
    pub fn on_resumed(&mut self, now: Instant, idle: Duration) {
        if let Self::Cubic(cubic) = self {
            cubic.on_resumed(now, idle);
        }
    }

    /// Starts the stream's offsets again at zero.
    pub fn rebase(&mut self, now: Instant) {
        match self {
            Self::Reno => {}
            Self::Cubic(cubic) => cubic.rebase(now),
            Self::Dctcp(dctcp) => dctcp.rebase(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_stops_at_the_threshold_and_returns_the_rest() {
        let mut window = Window { threshold: 14, ..Window::new(10) };
        assert_eq!(window.slow_start(2), 0);
        assert_eq!(window.slow_start(5), 3);
        assert_eq!(window.segments, 14);
        assert!(!window.in_slow_start());
    }

    #[test]
    fn reno_grows_one_segment_per_window_and_halves() {
        let mut reno = Controller::Reno;
        let mut window = Window { threshold: 10, ..Window::new(10) };
        for _ in 0..10 {
            reno.grow(&mut window, Instant::ZERO, 1);
        }
        assert_eq!(window.segments, 11);
        for _ in 0..11 {
            reno.grow(&mut window, Instant::ZERO, 1);
        }
        assert_eq!(window.segments, 12);
        assert_eq!(reno.threshold_on_loss(12), 6);
        assert_eq!(reno.threshold_on_loss(3), 2);
    }

    #[test]
    fn credit_for_several_increases_is_spent_at_once() {
        let mut window = Window::new(4);
        window.avoid(4, 9);
        assert_eq!((window.segments, window.credit), (6, 1));
    }
}
