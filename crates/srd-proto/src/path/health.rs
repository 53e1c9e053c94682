//! Performance of paths: confirmations, penalties, losses, and mass failure.
//!
//! A path becomes [`PathState::AssumedBad`] here if a packet on it is lost, and in `probe` if a
//! probe on it is not answered. It is dead (P7) after [`DEAD_AFTER`] losses or unanswered probes in
//! a row, a round trip apart, while other paths passed packets that were sent later.

use super::{DEAD_AFTER, PENALTY_LASTS, PENALTY_MAX, PathId, PathSet, PathState, Slot};
use crate::config::Spray;
use crate::ids::Entropy;
use crate::time::{Duration, Instant};

/// Time for which half of the paths must be bad before the connection counts as impaired.
const IMPAIRED_AFTER: Duration = Duration::from_millis(10);

/// The latency of a path's packet, compared with the median of all paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PathLatency {
    /// The latency is lower than the median by half of the target or more.
    Early,
    /// The latency is about the median.
    Typical,
    /// The latency is higher than the median. The number is the penalty: the number of times that
    /// the rotation skips the path.
    Late(u8),
}

impl Slot {
    /// Records that a packet passed the path.
    pub(super) fn prove(&mut self, now: Instant) {
        self.confirmed_at = now;
        (self.passed, self.fails) = (true, 0);
        self.unproven = false;
        if self.state == PathState::Good {
            self.awaiting = false;
            self.probe_at = Instant::FAR_FUTURE;
        }
    }

    /// Whether the path has a penalty, so that the rotation skips it.
    pub(super) fn is_penalised(&self, now: Instant) -> bool {
        self.penalty > 0 && now.since(self.penalised_at) < PENALTY_LASTS
    }

    pub(super) fn penalise(&mut self, now: Instant, penalty: u8) {
        (self.penalty, self.penalised_at) = (penalty, now);
    }

    /// Records that a packet that was sent on this path at `sent_at` did not arrive. Several such
    /// packets count once in a round trip.
    pub(super) fn fail(&mut self, now: Instant, sent_at: Instant) {
        if sent_at >= self.failed_at {
            self.fails = self.fails.saturating_add(1);
            self.failed_at = now;
        }
    }
}

impl PathSet {
    /// Records a packet that left on a path.
    pub(crate) fn on_sent(&mut self, path: PathId) {
        let slot = &mut self.slots[path.0 as usize];
        slot.sent_pkts = slot.sent_pkts.wrapping_add(1);
        slot.unproven = true;
    }

    /// Records the acknowledgement of a packet that was sent on a path. `generation`: the
    /// generation of the path when the packet was sent.
    pub(crate) fn on_acked(&mut self, now: Instant, path: PathId, generation: u8, psn: u64) {
        let slot = &mut self.slots[path.0 as usize];
        if slot.generation != generation {
            return;
        }
        slot.prove(now);
        self.confirmed_at = now;
        let slot = &mut self.slots[path.0 as usize];
        let mark = psn + 1;
        if mark > slot.acked[0] {
            slot.acked = [mark, slot.acked[0]];
        } else if mark > slot.acked[1] && mark != slot.acked[0] {
            slot.acked[1] = mark;
        }
    }

    /// Records an observation of a path. A path with typical latency is used again soon; a path
    /// that is later than most is skipped for a while.
    pub(crate) fn on_delay(
        &mut self,
        now: Instant,
        path: PathId,
        generation: u8,
        delay_ns: u32,
        latency: PathLatency,
    ) {
        let slot = &mut self.slots[path.0 as usize];
        if slot.generation != generation {
            return;
        }
        slot.delay_ns = delay_ns;
        // P4. Of the packets in flight on a late path only one does not confirm the path; the
        // others do, so that a slow path continues to carry as much as it can.
        let gives_up = match latency {
            PathLatency::Late(penalty) if slot.penalty == 0 => {
                slot.penalise(now, penalty.min(PENALTY_MAX));
                true
            }
            _ => false,
        };
        if self.policy != Spray::Adaptive {
            return;
        }
        match self.explore(path, latency == PathLatency::Early) {
            Some(again) if again != path || !gives_up => self.push_confirmed(again, now),
            _ => {}
        }
    }

    /// Records a lost packet: its path is assumed bad at once. If many paths lose packets together,
    /// the cause is probably the peer or the first hop, and the paths stay in use.
    pub(crate) fn on_loss(
        &mut self,
        now: Instant,
        path: PathId,
        generation: u8,
        sent_at: Instant,
        rtt: Duration,
    ) {
        let count = self.slots.len();
        let policy = self.policy;
        let slot = &mut self.slots[path.0 as usize];
        if slot.generation != generation || slot.state != PathState::Good {
            return;
        }
        slot.lost_pkts = slot.lost_pkts.wrapping_add(1);
        if policy != Spray::Adaptive {
            return;
        }
        // P7: A loss condemns the path
        if slot.confirmed_at > sent_at + rtt {
            // A packet that was sent later arrived: the path lost a packet, but it is not dead.
            slot.penalise(now, PENALTY_MAX);
            return;
        }
        slot.fail(now, sent_at);
        // Other paths passed packets that were sent since this path first failed. So the cause is
        // this path, whatever the number of bad paths.
        let dead = slot.fails >= DEAD_AFTER && self.confirmed_at > sent_at + rtt;
        if now.since(self.burst_since) > rtt.times(2) {
            (self.burst_since, self.burst_bad) = (now, 0);
        }
        self.burst_bad += 1;
        if usize::from(self.burst_bad) * 4 >= count * 3 {
            self.freeze(now, rtt);
            return;
        }
        if !dead && usize::from(self.bad) * 2 >= count {
            slot.penalise(now, PENALTY_MAX);
            return;
        }
        slot.state = PathState::AssumedBad;
        slot.answers = 0;
        slot.awaiting = false;
        slot.probe_interval = rtt;
        slot.probe_at = now + rtt;
        self.bad += 1;
        self.probe_due = self.probe_due.min(now + rtt);
    }

    /// Handles a mass failure: three quarters of the paths lost packets within two round trips. All
    /// except the dead paths return with a penalty, and for a while only confirmed paths are used.
    fn freeze(&mut self, now: Instant, rtt: Duration) {
        // P8: Mass failure
        self.frozen_until = now + rtt.times(4).max(Duration::from_micros(50));
        self.bad = 0;
        for slot in self.slots.iter_mut().filter(|s| s.state == PathState::AssumedBad) {
            if slot.fails >= DEAD_AFTER {
                self.bad += 1;
                continue;
            }
            slot.state = PathState::Good;
            slot.penalise(now, 1);
            slot.probe_at = Instant::FAR_FUTURE;
        }
        self.burst_bad = 0;
    }

    /// Handles a retransmission timeout: a context with a single path chooses another entropy, and
    /// forgets the observations of the old entropy.
    pub(crate) fn on_timeout(&mut self) {
        if self.policy != Spray::Single {
            return;
        }
        // P13: Single path changes after a timeout
        let entropy = self.rng.below(self.entropies.into());
        let slot = &mut self.slots[0];
        slot.entropy = u16::try_from(entropy).unwrap_or(0);
        slot.generation = slot.generation.wrapping_add(1);
        slot.acked = [0; 2];
    }

    /// Excludes a path from use, or allows it again. Returns whether the path exists.
    pub(crate) fn deny(&mut self, entropy: Entropy, denied: bool) -> bool {
        let Some(slot) = self.slots.iter_mut().find(|s| s.entropy == entropy.0) else {
            return false;
        };
        if slot.state == PathState::AssumedBad {
            self.bad -= 1;
        }
        // P12: Denied paths
        slot.state = if denied { PathState::Denied } else { PathState::Good };
        slot.probe_at = Instant::FAR_FUTURE;
        self.denied = self.counts(Instant::ZERO)[3];
        true
    }

    /// Whether the context has just become impaired: half of its paths or more have been bad for 10
    /// ms. Returns true once per impairment.
    pub(crate) fn newly_impaired(&mut self, now: Instant) -> bool {
        // P14: Impaired connection
        if usize::from(self.bad) * 2 < self.slots.len() {
            self.impaired_since = None;
            return false;
        }
        match self.impaired_since {
            None => {
                self.impaired_since = Some(now);
                false
            }
            Some(since) if since != Instant::FAR_FUTURE && now.since(since) > IMPAIRED_AFTER => {
                self.impaired_since = Some(Instant::FAR_FUTURE);
                true
            }
            Some(_) => false,
        }
    }
}
