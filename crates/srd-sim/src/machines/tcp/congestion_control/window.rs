//! The congestion window, and the inputs of the algorithms that control it. All windows are in
//! segments, as in Linux.

use srd_proto::time::{Duration, Instant};

/// Slow-start threshold before the first loss: a value that the window does not reach.
pub const THRESHOLD_INFINITE: u32 = u32::MAX >> 1;
/// Lower bound of the window after a reduction, in segments.
pub const WINDOW_MIN: u32 = 2;

/// The congestion window of a connection, with the slow-start threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Congestion window, in segments.
    pub segments: u32,
    /// Slow-start threshold, in segments.
    pub threshold: u32,
    /// Number of acknowledged segments that count towards the next increase.
    pub(in crate::machines::tcp) credit: u32,
}

impl Window {
    /// Creates a window of `segments`, in slow start.
    pub const fn new(segments: u32) -> Self {
        Self { segments, threshold: THRESHOLD_INFINITE, credit: 0 }
    }

    /// Whether the window is below the slow-start threshold.
    pub const fn in_slow_start(&self) -> bool {
        self.segments < self.threshold
    }

    /// Increases the window by the number of acknowledged segments, up to the threshold. Returns
    /// the acknowledged segments that remain for congestion avoidance.
    pub fn slow_start(&mut self, acked: u32) -> u32 {
        let grown = (self.segments + acked).min(self.threshold);
        let used = grown - self.segments;
        self.segments = grown;
        acked - used
    }

    /// Increases the window by one segment for every `per` acknowledged segments (congestion
    /// avoidance).
    pub fn avoid(&mut self, per: u32, acked: u32) {
        // The value of `per` may have become smaller than the credit since the last call.
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

/// A round-trip sample, with the position of the acknowledgement in the stream.
#[derive(Clone, Copy, Debug)]
pub struct RttSample {
    /// Time of the acknowledgement from which the sample was taken.
    pub now: Instant,
    /// Round trip of the latest acknowledged segment.
    pub rtt: Duration,
    /// Offset of the first unacknowledged byte.
    pub una: u64,
    /// Offset of the next byte to send.
    pub nxt: u64,
}

/// ECN marks that an acknowledgement reports.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// Number of segments that the acknowledgement delivers.
    pub delivered: u32,
    /// Whether the acknowledgement echoes congestion experienced.
    pub echo: bool,
    /// Offset of the first unacknowledged byte.
    pub una: u64,
    /// Offset of the next byte to send.
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
