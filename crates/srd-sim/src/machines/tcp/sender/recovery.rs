//! Phases of a connection: entering and leaving recovery, proportional rate reduction (RFC 6937),
//! and undoing a reduction that proves unnecessary (RFC 3522, RFC 5682, D-SACK).

use srd_proto::time::Instant;

use super::Sender;
use crate::machines::tcp::congestion_control::window::THRESHOLD_INFINITE;

/// Resolution of the timestamps that identify an unnecessary retransmission: Linux's timestamp
/// option counts milliseconds.
const TIMESTAMP_NS: u64 = 1_000_000;

/// Phase of a connection: Linux's congestion-avoidance states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Normal operation: no SACK, mark or loss is pending.
    Open,
    /// SACKs have arrived, but no segment counts as lost yet.
    Disorder,
    /// The window is being reduced after ECN marks without a loss (Linux: CWR).
    Reduced,
    /// Fast recovery after a loss that SACKs revealed.
    Recovery,
    /// Recovery after a retransmission timeout.
    Loss,
}

/// State of proportional rate reduction, in segments.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::machines::tcp) struct Reduction {
    prior_window: u32,
    delivered: u32,
    sent: u32,
}

impl Reduction {
    pub(in crate::machines::tcp) fn on_sent(&mut self) {
        self.sent += 1;
    }

    // Returns the number of segments that may be sent after an acknowledgement.
    fn allowance(&self, threshold: u32, in_flight: u32, newly: u32, good: bool) -> u32 {
        let budget = if in_flight > threshold {
            let due = u64::from(threshold) * u64::from(self.delivered);
            let due = due.div_ceil(u64::from(self.prior_window.max(1)));
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(self.sent)
        } else {
            let mut budget = self.delivered.saturating_sub(self.sent).max(newly);
            budget += u32::from(good);
            budget.min(threshold - in_flight)
        };
        // A fast retransmit is always allowed.
        budget.max(u32::from(self.sent == 0))
    }
}

/// State from which a reduction of the window can be undone.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::machines::tcp) struct Undo {
    // Offset of the first unacknowledged byte when the recovery began; `None` if it cannot be
    // undone.
    marker: Option<u64>,
    // Number of retransmissions since the recovery began, minus those reported as duplicates.
    resent: Option<u32>,
    first_resent_at: Option<Instant>,
    prior_window: u32,
    prior_threshold: u32,
}

impl Undo {
    pub(in crate::machines::tcp) fn on_resent(&mut self, now: Instant) {
        self.first_resent_at.get_or_insert(now);
        self.resent = Some(self.resent.unwrap_or(0) + 1);
    }

    pub(in crate::machines::tcp) fn on_duplicate(
        &mut self,
        start: u64,
        end: u64,
        prior_una: u64,
        mss_bytes: u32,
    ) {
        let Some(marker) = self.marker else {
            return;
        };
        if end > prior_una || end <= marker {
            return;
        }
        if let Some(resent) = &mut self.resent {
            let segments = (end - start).div_ceil(u64::from(mss_bytes)).max(1);
            *resent = resent.saturating_sub(u32::try_from(segments).unwrap_or(u32::MAX));
        }
    }

    /// Whether the receiver has reported every retransmission as a duplicate.
    fn all_duplicates(&self) -> bool {
        self.marker.is_some() && self.resent == Some(0)
    }

    /// Whether an echoed timestamp precedes the first retransmission, so that the original has
    /// arrived.
    fn original_came(&self, timestamp_echo_ns: u64) -> bool {
        self.first_resent_at
            .is_some_and(|at| timestamp_echo_ns / TIMESTAMP_NS < at.as_nanos() / TIMESTAMP_NS)
    }
}

impl Sender {
    fn init_undo(&mut self) {
        self.undo.marker = Some(self.una);
        let resent = self.board.resent();
        self.undo.resent = (resent > 0).then_some(resent);
    }

    fn init_reduction(&mut self, threshold: u32) {
        self.recovery_point = self.nxt;
        self.probe = None;
        self.window.clear_credit();
        self.reduction = Reduction { prior_window: self.window.segments, delivered: 0, sent: 0 };
        self.window.threshold = threshold;
    }

    fn remember_window(&mut self) {
        self.undo.prior_threshold = if matches!(self.phase, Phase::Reduced | Phase::Recovery) {
            self.window.threshold
        } else {
            self.window.threshold.max(self.window.segments / 2 + self.window.segments / 4)
        };
        self.undo.prior_window = self.window.segments;
    }

    /// Starts a reduction of the window after marks without a loss.
    pub(in crate::machines::tcp) fn enter_reduced(&mut self) {
        if self.phase >= Phase::Reduced {
            return;
        }
        self.undo.marker = None;
        let threshold = self.controller.threshold_on_marks(self.window.segments);
        self.init_reduction(threshold);
        self.reduced_unsaid = true;
        self.phase = Phase::Reduced;
    }

    pub(in crate::machines::tcp) fn enter_recovery(&mut self, marked: bool) {
        self.undo.prior_threshold = 0;
        self.undo.prior_window = self.window.segments;
        self.init_undo();
        if !matches!(self.phase, Phase::Reduced | Phase::Recovery) {
            if !marked {
                self.remember_window();
            }
            let threshold = self.controller.threshold_on_loss(self.window.segments);
            self.init_reduction(threshold);
        }
        self.reduced_unsaid = true;
        self.phase = Phase::Recovery;
    }

    /// Begins the recovery after a retransmission timeout: segments that were sent long enough ago
    /// count as lost, and the window restarts.
    pub(in crate::machines::tcp) fn enter_loss(&mut self, now: Instant) {
        let window = self.rack.reorder_window(&self.circumstances());
        let mut is_head = true;
        for number in self.board.numbers() {
            let record = *self.board.record(number);
            let recent = self.rack.patience(&record, now, window).as_nanos() > 0;
            if !self.board.is_sacked(number) && (is_head || !recent) {
                self.board.mark_lost(number);
            }
            is_head = false;
        }
        let new_recovery = self.phase < Phase::Recovery;
        let first = self.phase == Phase::Loss && self.retries == 0;
        if self.phase <= Phase::Disorder || self.recovery_point <= self.una || first {
            self.remember_window();
            self.window.threshold = self.controller.threshold_on_loss(self.window.segments);
            self.controller.on_timeout(now, self.nxt);
            self.init_undo();
        }
        self.window.segments = self.board.in_flight() + 1;
        self.window.clear_credit();
        self.phase = Phase::Loss;
        self.recovery_point = self.nxt;
        self.reduced_unsaid = true;
        self.probe = None;
        self.new_data_first = false;
        self.timeout_doubted = new_recovery || self.retries > 0;
    }

    /// Sets the window by proportional rate reduction. `newly` is the number of newly delivered
    /// segments. `good` means that the acknowledgement covered new data and showed no new loss.
    pub(in crate::machines::tcp) fn reduce(&mut self, newly: u32, good: bool) {
        if newly == 0 {
            return;
        }
        self.reduction.delivered += newly;
        let in_flight = self.board.in_flight();
        let allowance = self.reduction.allowance(self.window.threshold, in_flight, newly, good);
        self.window.segments = in_flight + allowance;
    }

    pub(in crate::machines::tcp) fn end_reduction(&mut self) {
        let reducing = self.phase == Phase::Reduced || self.undo.marker.is_some();
        if self.window.threshold < THRESHOLD_INFINITE && reducing {
            self.window.segments = self.window.threshold;
        }
    }

    /// Sets the phase to Open, or to Disorder if there are SACKed, lost or retransmitted segments.
    pub(in crate::machines::tcp) fn keep_open(&mut self) {
        let board = &self.board;
        let unusual = board.sacked() > 0 || board.lost() > 0 || board.resent() > 0;
        self.phase = if unusual { Phase::Disorder } else { Phase::Open };
        self.forget_resent();
    }

    fn forget_resent(&mut self) {
        if self.board.resent() == 0 {
            self.undo.first_resent_at = None;
        }
    }

    fn undo_reduction(&mut self, unmark: bool) {
        if unmark {
            self.board.forget_losses();
        }
        if self.undo.prior_threshold > 0 {
            self.window.segments = self.window.segments.max(self.undo.prior_window);
            self.window.threshold = self.window.threshold.max(self.undo.prior_threshold);
        }
        self.undo.marker = None;
    }

    fn may_undo(&self, timestamp_echo_ns: u64) -> bool {
        self.undo.all_duplicates()
            || self.undo.marker.is_some() && self.undo.original_came(timestamp_echo_ns)
    }

    /// Ends the recovery, because its recovery point is acknowledged.
    pub(in crate::machines::tcp) fn leave_recovery(&mut self, timestamp_echo_ns: u64) {
        if self.may_undo(timestamp_echo_ns) {
            self.undo_reduction(false);
        }
        self.rack.on_recovered();
        let was_recovery = self.phase == Phase::Recovery;
        self.phase = Phase::Open;
        if was_recovery {
            self.end_reduction();
        }
        self.undo.marker = None;
        self.forget_resent();
    }

    /// Ends an unnecessary recovery after an acknowledgement that shows the arrival of an original.
    /// Returns true if nothing else has to be done for the acknowledgement.
    pub(in crate::machines::tcp) fn undo_partial(&mut self, timestamp_echo_ns: u64) -> bool {
        if self.undo.marker.is_none() || !self.undo.original_came(timestamp_echo_ns) {
            return false;
        }
        if self.board.resent() > 0 {
            return true; // waits until the retransmissions have left the network
        }
        self.undo_reduction(true);
        self.keep_open();
        true
    }

    /// Undoes the reduction if every retransmission was a duplicate, which means that it was
    /// unnecessary. Returns whether it was undone.
    pub(in crate::machines::tcp) fn undo_duplicates(&mut self) -> bool {
        let needless = self.undo.all_duplicates();
        if needless {
            self.undo_reduction(false);
        }
        needless
    }

    /// Undoes the effects of a timeout if an original segment has arrived, which means that the
    /// timeout was unnecessary. Returns whether they were undone.
    pub(in crate::machines::tcp) fn undo_loss(
        &mut self,
        original: bool,
        timestamp_echo_ns: u64,
    ) -> bool {
        let needless = original || self.may_undo(timestamp_echo_ns);
        if needless {
            self.undo_reduction(true);
            self.retries = 0;
            self.phase = Phase::Open;
            self.undo.first_resent_at = None;
        }
        needless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Example of RFC 6937: a window of 20 becomes 14 by sending 14 segments for 20 delivered
    // segments.
    #[test]
    fn reduction_spreads_the_cut_over_the_window() {
        let mut reduction = Reduction { prior_window: 20, delivered: 0, sent: 0 };
        let mut in_flight = 19;
        for _ in 0..19 {
            reduction.delivered += 1;
            in_flight -= 1;
            let allowed = reduction.allowance(14, in_flight, 1, false);
            for _ in 0..allowed {
                reduction.on_sent();
                in_flight += 1;
            }
        }
        assert_eq!(in_flight, 14);
        assert_eq!(reduction.sent, 14);
    }

    #[test]
    fn reduction_rebuilds_a_collapsed_flight_no_faster_than_slow_start() {
        let reduction = Reduction { prior_window: 20, delivered: 5, sent: 5 };
        assert_eq!(reduction.allowance(14, 3, 1, false), 1, "conservation after more loss");
        assert_eq!(reduction.allowance(14, 3, 1, true), 2, "slow start otherwise");
        assert_eq!(reduction.allowance(14, 13, 4, true), 1, "never above the threshold");
        let start = Reduction { prior_window: 20, delivered: 1, sent: 0 };
        assert_eq!(start.allowance(2, 18, 1, false), 1, "the fast retransmit");
    }
}
