//! RACK loss detection (RFC 8985 section 6) with Linux's constants. A segment is lost if another
//! segment was delivered that was sent later by more than the reorder window.

use srd_proto::time::{Duration, Instant};

use super::scoreboard::{Record, Scoreboard};

/// Number of SACKed segments from which there is no reorder window, unless reordering was observed.
const DUPLICATES_MIN: u32 = 3;
/// Number of recoveries for which a widened reorder window lasts (RFC 8985 section 6.2).
const WIDENED_RECOVERIES: u8 = 16;

/// Inputs of the reorder window that are not part of RACK's state.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Smallest round trip of the connection.
    pub rtt_min: Duration,
    /// Smoothed round trip of the connection.
    pub srtt: Duration,
    /// Whether the connection is in fast recovery or in recovery after a timeout.
    pub recovering: bool,
    /// Number of SACKed segments.
    pub sacked: u32,
}

/// Result of a search for losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Number of segments that newly count as lost.
    pub lost: u32,
    /// Time after which another segment counts as lost, if no acknowledgement arrives; `None` if no
    /// segment is pending.
    pub wait: Option<Duration>,
}

/// State of RACK for a connection: the most recently sent segment that was delivered, and the
/// tolerance for reordering.
#[derive(Clone, Copy, Debug)]
pub struct Rack {
    sent_at: Instant,
    end: u64,
    rtt: Duration,
    advanced: bool,
    reordering_seen: bool,
    window_steps: u64,
    widened_recoveries: u8,
    widened_until: u64,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            sent_at: Instant::ZERO,
            end: 0,
            rtt: Duration::ZERO,
            advanced: false,
            reordering_seen: false,
            window_steps: 1,
            widened_recoveries: 0,
            widened_until: 0,
        }
    }
}

impl Rack {
    /// Records that a segment was delivered.
    pub fn on_delivered(&mut self, now: Instant, record: &Record, rtt_min: Option<Duration>) {
        let rtt = now.since(record.sent_at);
        if record.was_resent() && rtt_min.is_none_or(|min| rtt < min) {
            return; // acknowledges the original, not the retransmission
        }
        self.advanced = true;
        self.rtt = rtt;
        if (record.sent_at, record.end()) > (self.sent_at, self.end) {
            self.sent_at = record.sent_at;
            self.end = record.end();
        }
    }

    /// Records reordering: a segment that was sent only once arrived after a later segment.
    pub fn on_reordering(&mut self) {
        self.reordering_seen = true;
    }

    /// Records that the receiver reported a duplicate, so the reorder window was too small. The
    /// window grows at most once per round trip, which ends when byte `nxt` is acknowledged.
    pub fn on_duplicate(&mut self, una: u64, nxt: u64) {
        if una >= self.widened_until {
            self.window_steps = (self.window_steps + 1).min(255);
            self.widened_until = nxt;
        }
        self.widened_recoveries = WIDENED_RECOVERIES;
    }

    /// Records the end of a recovery. After 16 recoveries without a duplicate, the reorder
    /// window returns to its initial size.
    pub fn on_recovered(&mut self) {
        self.widened_recoveries = self.widened_recoveries.saturating_sub(1);
        if self.widened_recoveries == 0 {
            self.window_steps = 1;
        }
    }

    /// Returns the reorder window: the time by which a segment may have been sent before a
    /// delivered segment without counting as lost.
    pub fn reorder_window(&self, c: &Circumstances) -> Duration {
        if !self.reordering_seen && (c.recovering || c.sacked >= DUPLICATES_MIN) {
            return Duration::ZERO;
        }
        c.rtt_min.over(4).times(self.window_steps).min(c.srtt)
    }

    /// Returns the remaining time until `record` counts as lost; zero if it already counts as lost.
    pub fn patience(&self, record: &Record, now: Instant, window: Duration) -> Duration {
        (record.sent_at + self.rtt + window).since(now)
    }

    /// Marks overdue segments lost, if a segment was delivered since the last call. Otherwise
    /// returns `None`.
    pub fn detect(
        &mut self,
        board: &mut Scoreboard,
        now: Instant,
        c: &Circumstances,
    ) -> Option<Verdict> {
        std::mem::take(&mut self.advanced).then(|| self.search(board, now, c))
    }

    /// Marks overdue segments lost, and returns the time until the next segment is overdue.
    pub fn search(&self, board: &mut Scoreboard, now: Instant, c: &Circumstances) -> Verdict {
        let window = self.reorder_window(c);
        let mut verdict = Verdict::default();
        let mut cursor = board.oldest_sent();
        while let Some(number) = cursor {
            let record = *board.record(number);
            if (record.sent_at, record.end()) >= (self.sent_at, self.end) {
                break; // sent after the most recent delivery
            }
            cursor = board.next_sent(number);
            let patience = self.patience(&record, now, window);
            if patience == Duration::ZERO {
                verdict.lost += u32::from(board.mark_lost(number));
            } else {
                verdict.wait = verdict.wait.max(Some(patience));
            }
        }
        verdict
    }

    /// Prepares the state for a new flow on the connection, with stream offsets from zero. Keeps
    /// the tolerance for reordering.
    pub fn rebase(&mut self) {
        *self = Self {
            reordering_seen: self.reordering_seen,
            window_steps: self.window_steps,
            widened_recoveries: self.widened_recoveries,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::tcp::scoreboard::Progress;
    use crate::machines::tcp::segment::ByteRange;

    const RTT: Duration = Duration::from_micros(100);

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1000)
    }

    fn calm(sacked: u32) -> Circumstances {
        Circumstances { rtt_min: RTT, srtt: RTT, recovering: false, sacked }
    }

    // Returns ten segments of 1000 bytes, sent one per microsecond.
    fn flight() -> Scoreboard {
        let mut board = Scoreboard::default();
        for k in 0..10 {
            board.push(k * 1000, 1000, at(k));
        }
        board
    }

    fn sack(board: &mut Scoreboard, rack: &mut Rack, now: Instant, start: u64, end: u64) {
        let blocks = std::iter::once(ByteRange { start, end });
        board.on_sack(blocks, u64::MAX, &mut Progress::default(), |record| {
            rack.on_delivered(now, record, Some(RTT));
        });
    }

    #[test]
    fn fewer_than_three_sacks_wait_a_quarter_of_the_smallest_round_trip() {
        let (mut board, mut rack) = (flight(), Rack::default());
        sack(&mut board, &mut rack, at(101), 1000, 2000);
        let verdict = rack.detect(&mut board, at(101), &calm(1)).expect("something was delivered");
        // Segment 0 left at 0 us. The round trip of the delivered segment was 100 us and the window
        // is 25 us, so segment 0 is lost at 125 us.
        assert_eq!(verdict, Verdict { lost: 0, wait: Some(Duration::from_micros(24)) });
        assert_eq!(rack.detect(&mut board, at(102), &calm(1)), None, "nothing new");
        let verdict = rack.search(&mut board, at(125), &calm(1));
        assert_eq!(verdict, Verdict { lost: 1, wait: None });
        assert_eq!(board.next_lost(), Some(0));
    }

    #[test]
    fn three_sacks_mark_everything_sent_earlier_at_once() {
        let (mut board, mut rack) = (flight(), Rack::default());
        sack(&mut board, &mut rack, at(106), 4000, 7000);
        let verdict = rack.detect(&mut board, at(106), &calm(3)).expect("something was delivered");
        assert_eq!(verdict, Verdict { lost: 4, wait: None });
        assert_eq!(board.in_flight(), 3, "segments 7 to 9 were sent later");
    }

    #[test]
    fn reordering_seen_keeps_the_window_open_in_recovery() {
        let mut rack = Rack::default();
        let c = Circumstances { recovering: true, ..calm(9) };
        assert_eq!(rack.reorder_window(&c), Duration::ZERO);
        rack.on_reordering();
        assert_eq!(rack.reorder_window(&c), Duration::from_micros(25));
        rack.on_duplicate(0, 5000);
        rack.on_duplicate(1000, 6000);
        assert_eq!(rack.reorder_window(&c), Duration::from_micros(50), "once per round trip");
        for una in 2..9 {
            rack.on_duplicate(una * 5000, una * 5000 + 5000);
        }
        assert_eq!(rack.reorder_window(&c), RTT, "never above the smoothed round trip");
        for _ in 0..WIDENED_RECOVERIES {
            rack.on_recovered();
        }
        assert_eq!(rack.reorder_window(&c), Duration::from_micros(25));
    }

    #[test]
    fn lost_retransmission_is_found_by_a_later_delivery() {
        let (mut board, mut rack) = (flight(), Rack::default());
        sack(&mut board, &mut rack, at(105), 2000, 5000);
        rack.detect(&mut board, at(105), &calm(3));
        assert_eq!(board.lost(), 2);
        board.resend(0, at(105));
        board.resend(1, at(106));
        // The retransmission of segment 1 arrives; the retransmission of segment 0 does not.
        sack(&mut board, &mut rack, at(206), 1000, 5000);
        let verdict = rack.detect(&mut board, at(206), &calm(4)).expect("something was delivered");
        // Segments 5 to 9 also left before the retransmission of segment 1.
        assert_eq!(verdict.lost, 6);
        assert_eq!(board.next_lost(), Some(0));
    }

    #[test]
    fn early_answer_to_a_retransmission_is_the_originals() {
        let (mut board, mut rack) = (flight(), Rack::default());
        board.resend(9, at(200));
        sack(&mut board, &mut rack, at(250), 9000, 10_000);
        assert_eq!(rack.detect(&mut board, at(250), &calm(1)), None);
    }
}
