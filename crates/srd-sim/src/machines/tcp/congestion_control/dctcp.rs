//! DCTCP (RFC 8257): the sender reduces its window by the share of marked bytes, and the receiver
//! echoes every mark exactly.

use crate::machines::tcp::congestion_control::window::Marks;

/// Gain g of RFC 8257, as a right shift: 1/16.
const GAIN_SHIFT: u32 = 4;
/// Value of `alpha` that stands for 1.
const ALPHA_ONE: u32 = 1 << 10;

/// The sender's estimate of the share of marked segments.
#[derive(Clone, Copy, Debug)]
pub struct Dctcp {
    // Estimated share of marked segments, in units of 1 / ALPHA_ONE.
    alpha: u32,
    delivered: u32,
    marked: u32,
    // The observation window ends when this byte is acknowledged.
    round_end: u64,
}

impl Default for Dctcp {
    fn default() -> Self {
        // The estimate begins at one, so that a first mark halves the window (RFC 8257 section
        // 4.2).
        Self { alpha: ALPHA_ONE, delivered: 0, marked: 0, round_end: 0 }
    }
}

impl Dctcp {
    /// Counts the delivered and the marked segments of an acknowledgement, and updates alpha once
    /// per window.
    pub fn on_marks(&mut self, marks: &Marks) {
        self.delivered += marks.delivered;
        if marks.echo {
            self.marked += marks.delivered;
        }
        if marks.una < self.round_end || self.delivered == 0 {
            return;
        }
        let share = u64::from(self.marked) << (10 - GAIN_SHIFT);
        let share = u32::try_from(share / u64::from(self.delivered)).unwrap_or(ALPHA_ONE);
        // A small alpha decays to zero, as in Linux, although the shift gives zero.
        let decay = (self.alpha >> GAIN_SHIFT).max(u32::from(self.alpha > 0));
        self.alpha = (self.alpha - decay + share).min(ALPHA_ONE);
        self.delivered = 0;
        self.marked = 0;
        self.round_end = marks.nxt;
    }

    /// Returns the slow-start threshold after marks: the window times 1 - alpha / 2.
    pub fn threshold_on_marks(&self, segments: u32) -> u32 {
        let cut = (u64::from(segments) * u64::from(self.alpha)) >> 11;
        segments - u32::try_from(cut).unwrap_or(segments)
    }

    /// Prepares the state for a new flow on the connection, with stream offsets from zero. Keeps
    /// alpha.
    pub fn rebase(&mut self) {
        *self = Self { alpha: self.alpha, ..Self::default() };
    }
}

/// The receiver's state machine of RFC 8257 section 3.2: the echo in an acknowledgement is valid
/// for all segments that it acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EchoState {
    /// Whether the latest data segment was marked.
    pub marked: bool,
}

impl EchoState {
    /// Processes the mark of a data segment. Returns true if it differs from the previous mark. The
    /// earlier segments must then be acknowledged first, with the previous echo.
    pub fn on_segment(&mut self, marked: bool) -> bool {
        std::mem::replace(&mut self.marked, marked) != marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(dctcp: &mut Dctcp, number: u64, delivered: u32, marked: u32) {
        let una = number * 100;
        let mark = |delivered, echo, una| Marks { delivered, echo, una, nxt: una + 100 };
        dctcp.on_marks(&mark(marked, true, una - 1));
        dctcp.on_marks(&mark(delivered - marked, false, una));
    }

    #[test]
    fn alpha_follows_the_share_of_marks_with_gain_one_sixteenth() {
        let mut dctcp = Dctcp { round_end: 100, ..Dctcp::default() };
        assert_eq!(dctcp.threshold_on_marks(100), 50, "alpha starts at one");
        // The values are 1024 - 64, 960 - 60, and 900 - 56 + 64 * 10 / 40.
        round(&mut dctcp, 1, 40, 0);
        assert_eq!(dctcp.alpha, 960);
        round(&mut dctcp, 2, 40, 0);
        assert_eq!(dctcp.alpha, 900);
        round(&mut dctcp, 3, 40, 10);
        assert_eq!(dctcp.alpha, 860);
        for number in 4..200 {
            round(&mut dctcp, number, 40, 10);
        }
        assert!((250..=272).contains(&dctcp.alpha), "a quarter: {}", dctcp.alpha);
        assert_eq!(dctcp.threshold_on_marks(80), 80 - ((80 * dctcp.alpha) >> 11));
        for number in 200..400 {
            round(&mut dctcp, number, 40, 0);
        }
        assert_eq!((dctcp.alpha, dctcp.threshold_on_marks(80)), (0, 80));
    }

    #[test]
    fn all_marked_keeps_alpha_at_one() {
        let mut dctcp = Dctcp { round_end: 100, ..Dctcp::default() };
        for number in 1..50 {
            round(&mut dctcp, number, 40, 40);
        }
        assert_eq!(dctcp.alpha, ALPHA_ONE);
    }

    #[test]
    fn echo_changes_only_with_the_mark() {
        let mut echo = EchoState::default();
        let marks = [false, true, true, false, false, true];
        let changes: Vec<_> = marks.into_iter().map(|mark| echo.on_segment(mark)).collect();
        assert_eq!(changes, [false, true, false, true, false, true]);
    }
}
