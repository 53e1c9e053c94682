//! How paths perform: confirmations, penalties, silent losses, and mass failure.

use super::{DEAD_AFTER, PENALTY_LASTS, PENALTY_MAX, PathId, PathSet, PathState, Slot};
use crate::config::Spray;
use crate::ids::Entropy;
use crate::time::{Duration, Instant};

/// How long most paths may be bad before it is called an impairment.
const IMPAIRED_AFTER: Duration = Duration::from_millis(10);

/// The latency of a path's packet, compared with the median of all paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PathLatency {
    /// Much lower.
    Early,
    /// About the median.
    Typical,
    /// Higher: the rotation passes over the path this many times.
    Late(u8),
}

impl Slot {
    /// Something that went this way has arrived.
    pub(super) fn prove(&mut self, now: Instant) {
        self.confirmed_at = now;
        (self.passed, self.fails) = (true, 0);
        self.unproven = false;
        if self.state == PathState::Good {
            self.awaiting = false;
            self.probe_at = Instant::FAR_FUTURE;
        }
    }

    /// Whether the rotation passes it over now.
    pub(super) fn is_penalised(&self, now: Instant) -> bool {
        self.penalty > 0 && now.since(self.penalised_at) < PENALTY_LASTS
    }

    pub(super) fn penalise(&mut self, now: Instant, penalty: u8) {
        (self.penalty, self.penalised_at) = (penalty, now);
    }

    /// Something that left at `sent_at` did not arrive. Counts once a round trip.
    pub(super) fn fail(&mut self, now: Instant, sent_at: Instant) {
        if sent_at >= self.failed_at {
            self.fails = self.fails.saturating_add(1);
            self.failed_at = now;
        }
    }
}

impl PathSet {
    /// A packet left on a path.
    pub(crate) fn on_sent(&mut self, path: PathId) {
        let slot = &mut self.slots[path.0 as usize];
        slot.sent_pkts = slot.sent_pkts.wrapping_add(1);
        slot.unproven = true;
    }

    /// A packet on a path was acknowledged.
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

    /// A path observation: ordinary paths are used again soon, outliers (later than most)
    /// are passed over.
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
        // P4. A late path gives up one of the packets it has in flight, not all: the others come
        // round again, so that a slow path goes on carrying what it can.
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

    /// A packet was lost without a mark: the path is assumed bad at once, unless so many
    /// went bad together that the fault must be the peer's or the first hop's.
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
        // P7
        if slot.confirmed_at > sent_at + rtt {
            // Something sent later came through: it lost a packet but it is not dead.
            slot.penalise(now, PENALTY_MAX);
            return;
        }
        slot.fail(now, sent_at);
        // Others passed what was sent since: then it is the path, however many there are like it.
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

    /// Three quarters went bad within two round trips: bring them back with a penalty, but for the
    /// dead, and keep to what was confirmed for a while.
    fn freeze(&mut self, now: Instant, rtt: Duration) {
        // P8
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

    /// Nothing came back for a whole timeout. A context that has but one path takes another
    /// entropy; its old colour is forgotten.
    pub(crate) fn on_timeout(&mut self) {
        if self.policy != Spray::Single {
            return;
        }
        // P13
        let entropy = self.rng.below(self.entropies.into());
        let slot = &mut self.slots[0];
        slot.entropy = u16::try_from(entropy).unwrap_or(0);
        slot.generation = slot.generation.wrapping_add(1);
        slot.acked = [0; 2];
    }

    /// Takes a path out of use, or puts it back.
    pub(crate) fn deny(&mut self, entropy: Entropy, denied: bool) -> bool {
        let Some(slot) = self.slots.iter_mut().find(|s| s.entropy == entropy.0) else {
            return false;
        };
        if slot.state == PathState::AssumedBad {
            self.bad -= 1;
        }
        // P12
        slot.state = if denied { PathState::Denied } else { PathState::Good };
        slot.probe_at = Instant::FAR_FUTURE;
        self.denied = self.counts(Instant::ZERO)[3];
        true
    }

    /// Whether the context has just been impaired: more than half its paths bad for 10 ms.
    /// True once per impairment.
    pub(crate) fn newly_impaired(&mut self, now: Instant) -> bool {
        // P14
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
