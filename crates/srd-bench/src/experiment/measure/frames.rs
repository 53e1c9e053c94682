//! Statistics of the video frames of one run.
//!
//! A frame is complete when its last datagram has arrived. A frame is *late* if this happens more
//! than one frame time after the sender began to send it, because the next frame is due at that
//! moment.

/// Largest number of datagrams of a frame.
pub(in crate::experiment) const PACKETS_MAX: u16 = 64;

/// The frames of one run, and the arrival of their datagrams. All times are in seconds since the
/// start of the run.
pub(in crate::experiment) struct Frames {
    packets_per_frame: u16,
    frame_s: f64,
    frames: Vec<Frame>,
    received: u64,
    twice: u64,
}

#[derive(Clone, Copy, Default)]
struct Frame {
    sent_s: Option<f64>,
    /// Bitmap of the datagrams of the frame that have arrived.
    seen: u64,
    complete_s: Option<f64>,
}

/// Statistics of the frames of a run.
#[derive(Debug, Default, PartialEq)]
pub(in crate::experiment) struct Account {
    /// Number of frames that were sent.
    pub(in crate::experiment) sent: usize,
    /// Number of frames of which a datagram is missing.
    pub(in crate::experiment) incomplete: usize,
    /// Number of frames that were complete more than one frame time after their sending began.
    pub(in crate::experiment) late: usize,
    /// Number of complete frames that were preceded by a gap: the previous complete frame was
    /// complete earlier by more than one frame time plus the allowance of [`Frames::account`].
    pub(in crate::experiment) gaps: usize,
    /// Number of datagrams that did not arrive.
    pub(in crate::experiment) lost: u64,
    /// For each complete frame, the milliseconds from the start of its sending to its last
    /// datagram.
    pub(in crate::experiment) delay_ms: Vec<f64>,
    /// Milliseconds between each complete frame and the previous complete frame.
    pub(in crate::experiment) gap_ms: Vec<f64>,
}

impl Frames {
    /// Creates the record for `count` frames that have not been sent yet.
    pub(in crate::experiment) fn new(count: usize, packets_per_frame: u16, frame_s: f64) -> Frames {
        assert!((1..=PACKETS_MAX).contains(&packets_per_frame), "a bit per datagram");
        let frames = vec![Frame::default(); count];
        Frames { packets_per_frame, frame_s, frames, received: 0, twice: 0 }
    }

    /// Records that the sending of a frame has begun.
    pub(in crate::experiment) fn sent(&mut self, frame: usize, at_s: f64) {
        if let Some(frame) = self.frames.get_mut(frame) {
            frame.sent_s = Some(at_s);
        }
    }

    /// Records that a datagram of a frame has arrived. A datagram with an invalid number is
    /// ignored.
    pub(in crate::experiment) fn arrived(&mut self, frame: usize, packet: u16, at_s: f64) {
        let Some(frame) = self.frames.get_mut(frame) else { return };
        if packet >= self.packets_per_frame {
            return;
        }
        let bit = 1u64 << packet;
        if frame.seen & bit != 0 {
            self.twice += 1;
            return;
        }
        frame.seen |= bit;
        self.received += 1;
        if frame.seen.count_ones() == u32::from(self.packets_per_frame) {
            frame.complete_s = Some(at_s);
        }
    }

    /// Returns the number of datagrams that arrived more than once.
    pub(in crate::experiment) fn twice(&self) -> u64 {
        self.twice
    }

    /// Returns the statistics of all frames. A gap counts if it exceeds the frame time by more than
    /// the allowance.
    pub(in crate::experiment) fn account(&self, allowance_s: f64) -> Account {
        let mut account = Account::default();
        let mut last_s: Option<f64> = None;
        for frame in &self.frames {
            let Some(sent_s) = frame.sent_s else { continue };
            account.sent += 1;
            let Some(complete_s) = frame.complete_s else {
                account.incomplete += 1;
                continue;
            };
            let delay_s = complete_s - sent_s;
            account.late += usize::from(delay_s > self.frame_s);
            account.delay_ms.push(delay_s * 1e3);
            if let Some(last_s) = last_s {
                let gap_s = complete_s - last_s;
                account.gaps += usize::from(gap_s > self.frame_s + allowance_s);
                account.gap_ms.push(gap_s * 1e3);
            }
            // If a later frame was complete first, this frame is shown at the same time as that
            // one.
            last_s = Some(last_s.map_or(complete_s, |last_s| complete_s.max(last_s)));
        }
        let wanted = account.sent as u64 * u64::from(self.packets_per_frame);
        account.lost = wanted.saturating_sub(self.received);
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three frames of two datagrams each, sent at intervals of a second.
    fn frames() -> Frames {
        let mut frames = Frames::new(3, 2, 1.0);
        (0..3).for_each(|n| frames.sent(n, n as f64));
        frames
    }

    #[test]
    fn frames_in_time_are_neither_late_nor_gaps() {
        let mut frames = frames();
        for n in 0..3 {
            frames.arrived(n, 1, n as f64 + 0.2);
            frames.arrived(n, 0, n as f64 + 0.3);
        }
        let account = frames.account(0.01);
        assert_eq!((account.sent, account.incomplete, account.late, account.gaps), (3, 0, 0, 0));
        assert_eq!(account.lost, 0);
        assert!(account.delay_ms.iter().all(|ms| (ms - 300.0).abs() < 1e-6));
    }

    #[test]
    fn a_missing_datagram_spoils_its_frame_and_leaves_a_gap() {
        let mut frames = frames();
        for (frame, packet, at) in [(0, 0, 0.1), (0, 1, 0.2), (1, 0, 1.1), (2, 0, 2.1), (2, 1, 2.2)]
        {
            frames.arrived(frame, packet, at);
        }
        let account = frames.account(0.01);
        assert_eq!((account.incomplete, account.late, account.gaps, account.lost), (1, 0, 1, 1));
        assert!((account.gap_ms[0] - 2000.0).abs() < 1e-6);
    }

    #[test]
    fn late_counts_from_the_beginning_of_sending() {
        let mut frames = frames();
        frames.arrived(0, 0, 0.1);
        frames.arrived(0, 1, 1.5);
        let account = frames.account(0.01);
        assert_eq!((account.late, account.incomplete), (1, 2));
    }

    #[test]
    fn copies_and_strangers_change_nothing() {
        let mut frames = frames();
        frames.arrived(0, 0, 0.1);
        frames.arrived(0, 0, 0.2);
        frames.arrived(0, 7, 0.2);
        frames.arrived(99, 0, 0.2);
        assert_eq!(frames.twice(), 1);
        let account = frames.account(0.0);
        assert_eq!((account.incomplete, account.lost), (3, 5));
    }

    #[test]
    fn a_frame_that_was_overtaken_makes_no_gap_of_its_successor() {
        let mut frames = frames();
        for (frame, at) in [(0, 0.1), (1, 2.4), (2, 2.1)] {
            frames.arrived(frame, 0, at);
            frames.arrived(frame, 1, at);
        }
        let account = frames.account(0.01);
        assert_eq!((account.late, account.gaps), (1, 1));
        assert!(account.gap_ms[1] < 0.0);
    }
}
