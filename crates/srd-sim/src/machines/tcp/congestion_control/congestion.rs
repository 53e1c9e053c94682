//! Choice of the algorithm that controls the congestion window.

use srd_proto::time::{Duration, Instant};

use crate::machines::tcp::config::{Congestion, TcpConfig};
use crate::machines::tcp::congestion_control::cubic::Cubic;
use crate::machines::tcp::congestion_control::dctcp::Dctcp;
use crate::machines::tcp::congestion_control::window::{Marks, RttSample, WINDOW_MIN, Window};

/// The algorithm of congestion control, with its state.
#[derive(Clone, Copy, Debug)]
pub enum Controller {
    /// NewReno, which has no state besides the window.
    Reno,
    /// CUBIC with its state.
    Cubic(Cubic),
    /// DCTCP with its state.
    Dctcp(Dctcp),
}

impl Controller {
    /// Creates the algorithm that the configuration names.
    pub fn new(config: &TcpConfig) -> Self {
        match config.congestion {
            Congestion::Reno => Self::Reno,
            Congestion::Cubic => Self::Cubic(Cubic::new(config.hystart)),
            Congestion::Dctcp => Self::Dctcp(Dctcp::default()),
        }
    }

    /// Passes a round-trip sample to the algorithm. HyStart may end slow start.
    pub fn on_rtt(&mut self, window: &mut Window, sample: &RttSample) {
        if let Self::Cubic(cubic) = self {
            cubic.on_rtt(window, sample);
        }
    }

    /// Passes the ECN marks of an acknowledgement, or their absence, to the algorithm.
    pub fn on_marks(&mut self, marks: &Marks) {
        if let Self::Dctcp(dctcp) = self {
            dctcp.on_marks(marks);
        }
    }

    /// Increases the window after `acked` segments were delivered. Called only if the window was
    /// the limit of sending.
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

    /// Returns the slow-start threshold after a loss.
    pub fn threshold_on_loss(&mut self, segments: u32) -> u32 {
        match self {
            Self::Cubic(cubic) => cubic.threshold_on_loss(segments),
            Self::Reno | Self::Dctcp(_) => segments / 2,
        }
        .max(WINDOW_MIN)
    }

    /// Returns the slow-start threshold after ECN marks without a loss.
    pub fn threshold_on_marks(&mut self, segments: u32) -> u32 {
        match self {
            Self::Dctcp(dctcp) => dctcp.threshold_on_marks(segments).max(WINDOW_MIN),
            Self::Reno | Self::Cubic(_) => self.threshold_on_loss(segments),
        }
    }

    /// Passes a retransmission timeout to the algorithm. `nxt` is the next byte to send.
    pub fn on_timeout(&mut self, now: Instant, nxt: u64) {
        if let Self::Cubic(cubic) = self {
            cubic.on_timeout(now, nxt);
        }
    }

    /// Called when sending resumes after a time of `idle` without a packet in flight.
    pub fn on_resumed(&mut self, now: Instant, idle: Duration) {
        if let Self::Cubic(cubic) = self {
            cubic.on_resumed(now, idle);
        }
    }

    /// Prepares the algorithm for a new flow on the connection, with stream offsets from zero.
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
}
