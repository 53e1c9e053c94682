//! The congestion window, and the inputs of its algorithms. All windows are in segments, as in
//! Linux.

use srd_proto::time::{Duration, Instant};

/// A threshold that slow start does not reach.
pub const THRESHOLD_INFINITE: u32 = u32::MAX >> 1;
/// Lower bound of all reductions.
pub const WINDOW_MIN: u32 = 2;

/// The window and its threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Congestion window.
    pub segments: u32,
    /// Slow-start threshold.
    pub threshold: u32,
    /// Acknowledged segments towards the next increase.
    pub(in crate::machines::tcp) credit: u32,
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

    /// Grows by the acknowledged segments, to the threshold at most. Returns the segments left
    /// over.
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

    /// Discards the progress towards the next increase.
    pub fn clear_credit(&mut self) {
        self.credit = 0;
    }
}

/// A round-trip sample, with the position in the stream.
#[derive(Clone, Copy, Debug)]
pub struct RttSample {
    /// Time of the sample.
    pub now: Instant,
    /// Round trip of the latest acknowledged segment.
    pub rtt: Duration,
    /// The first unacknowledged byte.
    pub una: u64,
    /// The next byte to send.
    pub nxt: u64,
}

/// Marks in an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// Segments that the acknowledgement delivers.
    pub delivered: u32,
    /// Whether the acknowledgement echoes congestion.
    pub echo: bool,
    /// The first unacknowledged byte.
    pub una: u64,
    /// The next byte to send.
    pub nxt: u64,
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
    fn credit_for_several_increases_is_spent_at_once() {
        let mut window = Window::new(4);
        window.avoid(4, 9);
        assert_eq!((window.segments, window.credit), (6, 1));
    }
}
