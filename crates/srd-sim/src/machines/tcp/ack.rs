//! Processing of an acknowledgement by a sender, after Linux's functions `tcp_ack` and
//! `tcp_fastretrans_alert`.

use srd_proto::time::{Duration, Instant};

use super::congestion_control::window::{Marks, RttSample};
use super::scoreboard::Progress;
use super::segment::{ByteRange, FLAG_DSACK, FLAG_ECE, TcpSegment};
use super::sender::recovery::Phase;
use super::sender::{Probe, Sender};

/// Resolution of timestamp-based round trips: Linux's timestamp option counts milliseconds.
const TIMESTAMP_NS: u64 = 1_000_000;

/// State of one acknowledgement while the sender processes it.
struct Arrival {
    now: Instant,
    ack: u64,
    timestamp_echo_ns: u64,
    echo: bool,
    duplicate: bool,
    duplicate_of_probe: bool,
    advanced: bool,
    progress: Progress,
    newly_lost: u32,
    /// Whether the retransmission or probe timer starts again from its full duration.
    rearm: bool,
}

impl Sender {
    /// Processes an acknowledgement.
    pub fn on_ack(&mut self, now: Instant, ack: &TcpSegment) {
        if ack.ack > self.nxt || ack.ack < self.una {
            return; // never sent, or overtaken
        }
        let mut arrival = Arrival {
            now,
            ack: ack.ack,
            timestamp_echo_ns: ack.timestamp_echo_ns,
            echo: ack.has(FLAG_ECE) && self.config.ecn_capable(),
            duplicate: false,
            duplicate_of_probe: false,
            advanced: ack.ack > self.una,
            progress: Progress::default(),
            newly_lost: 0,
            rearm: false,
        };
        let mut blocks = ack.sack_blocks();
        if ack.has(FLAG_DSACK)
            && let Some(block) = blocks.next()
        {
            self.take_duplicate(&mut arrival, block);
        }
        self.take_progress(&mut arrival, blocks);
        self.take_round_trip(&mut arrival);
        self.controller.on_marks(&Marks {
            delivered: arrival.progress.delivered,
            echo: arrival.echo,
            una: self.una,
            nxt: self.nxt,
        });
        if let Some(probe) = self.probe {
            self.judge_probe(&arrival, probe);
        }
        self.new_data_first = false;
        let progress = &arrival.progress;
        let plain = self.phase == Phase::Open
            && progress.acked > 0
            && progress.sacked == 0
            && !arrival.echo
            && !arrival.duplicate;
        if !plain {
            self.alert(&mut arrival);
        }
        if arrival.rearm {
            self.rearm(now);
        }
        self.adjust_window(&arrival);
    }

    fn take_duplicate(&mut self, arrival: &mut Arrival, block: ByteRange) {
        arrival.duplicate = true;
        arrival.duplicate_of_probe =
            self.probe.is_some_and(|probe| probe.resent && probe.end == block.end);
        if !arrival.duplicate_of_probe {
            self.rack.on_duplicate(self.una, self.nxt);
        }
        let mss_bytes = self.config.mss_bytes();
        self.undo.on_duplicate(block.start, block.end, self.una.max(arrival.ack), mss_bytes);
    }

    fn take_progress(&mut self, arrival: &mut Arrival, blocks: impl Iterator<Item = ByteRange>) {
        let Self { board, rack, rtt, .. } = self;
        let (now, rtt_min) = (arrival.now, rtt.min());
        let progress = &mut arrival.progress;
        let point = self.recovery_point;
        board.on_sack(blocks, point, progress, |r| rack.on_delivered(now, r, rtt_min));
        board.on_ack(arrival.ack, point, progress, |r| rack.on_delivered(now, r, rtt_min));
        if progress.reordered {
            rack.on_reordering();
        }
        if arrival.advanced {
            self.una = arrival.ack;
            self.retries = 0;
        }
    }

    // As Linux's `tcp_ack_update_rtt` does: the oldest newly acknowledged segment gives the
    // round-trip estimate, and the latest gives the sample for congestion control. After a
    // retransmission the timestamps are used instead.
    fn take_round_trip(&mut self, arrival: &mut Arrival) {
        let progress = &arrival.progress;
        let now = arrival.now;
        let (mut oldest, mut latest) = (None, None);
        if !progress.resent_acked {
            oldest = progress.first_acked_at;
            latest = progress.last_acked_at;
        }
        let sack_rtt = progress.first_sacked_at.map(|at| now.since(at));
        let mut rtt = oldest.map(|at| now.since(at)).or(sack_rtt);
        let mut latest = latest.take().or(progress.last_sacked_at).map(|at| now.since(at));
        if rtt.is_none() && progress.acked > 0 && arrival.timestamp_echo_ns > 0 {
            let ticks = now.as_nanos() / TIMESTAMP_NS - arrival.timestamp_echo_ns / TIMESTAMP_NS;
            rtt = Some(Duration::from_millis(ticks.max(1)));
            latest = rtt;
        }
        arrival.rearm = progress.acked > 0
            || match (sack_rtt, self.board.head()) {
                // A SACK of a segment that left before the last transmission of the head does not
                // count. Otherwise recovery would postpone the timeout for ever.
                (Some(sack_rtt), Some(head)) => sack_rtt > now.since(head.sent_at),
                _ => false,
            };
        if let Some(rtt) = rtt {
            self.rtt.on_minimum(latest.unwrap_or(rtt));
            self.rtt.on_sample(rtt, self.una, self.nxt);
        }
        if let Some(rtt) = latest {
            let sample = RttSample { now, rtt, una: self.una, nxt: self.nxt };
            self.controller.on_rtt(&mut self.window, &sample);
        }
    }

    // RFC 8985 section 7.4: decides whether a tail probe repaired a loss that nothing else showed.
    fn judge_probe(&mut self, arrival: &Arrival, probe: Probe) {
        if arrival.ack < probe.end {
            return;
        }
        let progress = &arrival.progress;
        if !probe.resent || arrival.duplicate_of_probe {
            self.probe = None;
        } else if arrival.ack > probe.end {
            // No duplicate was reported, so the probe or the original was lost. The window is
            // reduced once.
            if self.phase < Phase::Reduced {
                self.enter_reduced();
                self.end_reduction();
                self.keep_open();
            }
            self.probe = None;
        } else if !arrival.advanced && progress.sacked == 0 && !arrival.duplicate {
            self.probe = None; // a pure duplicate: both arrived
        }
    }

    fn alert(&mut self, arrival: &mut Arrival) {
        let recovered = self.una >= self.recovery_point;
        if recovered && self.phase == Phase::Reduced && self.una != self.recovery_point {
            self.end_reduction();
            self.phase = Phase::Open;
        }
        if recovered && self.phase == Phase::Recovery {
            self.leave_recovery(arrival.timestamp_echo_ns);
        }
        match self.phase {
            Phase::Recovery => {
                if arrival.advanced && self.undo_partial(arrival.timestamp_echo_ns) {
                    return;
                }
                if self.undo_duplicates() {
                    self.keep_open();
                }
                self.detect_losses(arrival);
                if self.phase != Phase::Recovery {
                    self.recover_or_open(arrival);
                }
            }
            Phase::Loss => {
                self.work_off_timeout(arrival, recovered);
                let resent = self.board.resent();
                self.detect_losses(arrival);
                let lost_again = self.board.resent() < resent;
                if self.phase == Phase::Open || lost_again {
                    self.recover_or_open(arrival);
                }
            }
            Phase::Open | Phase::Disorder | Phase::Reduced => {
                if self.phase <= Phase::Disorder {
                    self.undo_duplicates();
                }
                self.detect_losses(arrival);
                self.recover_or_open(arrival);
            }
        }
    }

    fn recover_or_open(&mut self, arrival: &Arrival) {
        if self.board.lost() > 0 {
            self.enter_recovery(arrival.echo);
            return;
        }
        if arrival.echo {
            self.enter_reduced();
        }
        if self.phase != Phase::Reduced {
            self.keep_open();
        }
    }

    // RFC 5682 section 3 (F-RTO with SACK), in the form of Linux's `tcp_process_loss`.
    fn work_off_timeout(&mut self, arrival: &Arrival, recovered: bool) {
        if arrival.advanced && self.undo_loss(false, arrival.timestamp_echo_ns) {
            return;
        }
        if self.timeout_doubted {
            if arrival.progress.original_delivered && self.undo_loss(true, 0) {
                return;
            }
            if self.nxt > self.recovery_point {
                if arrival.progress.sacked > 0 {
                    self.timeout_doubted = false; // the loss was real
                }
            } else if arrival.advanced && !recovered {
                self.recovery_point = self.nxt;
                if self.may_send_new() {
                    self.new_data_first = true;
                    return;
                }
                self.timeout_doubted = false;
            }
        }
        if recovered {
            self.leave_recovery(arrival.timestamp_echo_ns);
        }
    }

    fn detect_losses(&mut self, arrival: &mut Arrival) {
        let circumstances = self.circumstances();
        let Some(verdict) = self.rack.detect(&mut self.board, arrival.now, &circumstances) else {
            return;
        };
        arrival.newly_lost += verdict.lost;
        if let Some(wait) = verdict.wait {
            self.arm_reorder(arrival.now, wait);
            arrival.rearm = false;
        }
    }

    /// Searches for losses after a segment's reorder window has ended without its acknowledgement.
    pub(super) fn on_reorder_timer(&mut self, now: Instant) {
        let circumstances = self.circumstances();
        let verdict = self.rack.search(&mut self.board, now, &circumstances);
        if verdict.lost > 0 && self.phase != Phase::Recovery {
            self.enter_recovery(false);
            self.reduce(1, false);
        }
        match verdict.wait {
            Some(wait) => self.arm_reorder(now, wait),
            None => self.rearm_retransmit(now),
        }
    }

    // Changes the window after an acknowledgement, as Linux's `tcp_cong_control` does.
    fn adjust_window(&mut self, arrival: &Arrival) {
        let delivered = arrival.progress.delivered;
        if matches!(self.phase, Phase::Reduced | Phase::Recovery) {
            self.reduce(delivered, arrival.advanced && arrival.newly_lost == 0);
        } else if arrival.progress.acked > 0 && self.is_window_limited() {
            self.controller.grow(&mut self.window, arrival.now, delivered);
        }
    }
}
