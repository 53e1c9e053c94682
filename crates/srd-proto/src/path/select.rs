//! Which path the next packet takes: a recently confirmed one first (REPS: each clean
//! acknowledgement lets its path be used once more), else the next in a shuffled rotation that
//! is neither bad nor penalised. Chosen at transmit time, never at queueing.

use super::{PENALTY_MAX, PathId, PathSet, PathState, Slot};
use crate::config::Spray;
use crate::time::{Duration, Instant};

impl PathSet {
    /// The path for the next packet. `fresh` is how long a confirmation counts.
    pub(crate) fn pick(&mut self, now: Instant, fresh: Duration) -> PathId {
        match self.policy {
            Spray::Single => PathId(0),
            Spray::Oblivious => self.rotate(|_| true),
            Spray::Adaptive => {
                let unknown = self.pick_unknown();
                unknown
                    .or_else(|| self.pop_confirmed(now, fresh))
                    .unwrap_or_else(|| self.rotate_adaptive(now))
            }
        }
    }

    /// A path for a packet that should arrive: a recently confirmed one if there is any. Does
    /// not use up the confirmation.
    pub(crate) fn pick_safe(&mut self, now: Instant, fresh: Duration) -> PathId {
        if self.policy != Spray::Adaptive {
            return self.pick(now, fresh);
        }
        let confirmed = self
            .ring
            .iter()
            .copied()
            .find(|(slot, at)| now.since(*at) <= fresh && self.usable(PathId(*slot)));
        match confirmed {
            Some((slot, _)) => PathId(slot),
            None => self
                .best_confirmed(now, fresh.times(4))
                .unwrap_or_else(|| self.rotate_adaptive(now)),
        }
    }

    fn usable(&self, path: PathId) -> bool {
        self.slots[path.0 as usize].state == PathState::Good
    }

    fn best_confirmed(&self, now: Instant, within: Duration) -> Option<PathId> {
        (0u8..=u8::MAX)
            .zip(&self.slots)
            .filter(|(_, s)| s.state == PathState::Good && now.since(s.confirmed_at) <= within)
            .filter(|(_, s)| s.confirmed_at > Instant::ZERO)
            .max_by_key(|(_, s)| s.confirmed_at)
            .map(|(i, _)| PathId(i))
    }

    fn pop_confirmed(&mut self, now: Instant, fresh: Duration) -> Option<PathId> {
        while let Some((slot, at)) = self.ring.pop_front() {
            self.slots[slot as usize].in_ring = false;
            if now.since(at) <= fresh && self.usable(PathId(slot)) {
                return Some(PathId(slot));
            }
        }
        None
    }

    /// Puts a path into the ring of confirmed ones, unless it waits there already.
    pub(super) fn push_confirmed(&mut self, path: PathId, now: Instant) {
        let slot = &mut self.slots[path.0 as usize];
        if slot.in_ring || slot.state != PathState::Good {
            return;
        }
        slot.in_ring = true;
        self.ring.push_back((path.0, now));
    }

    /// The next path in rotation that carries data and is not penalised; a penalised one is
    /// passed over and its penalty taken down. While frozen, only confirmed paths.
    fn rotate_adaptive(&mut self, now: Instant) -> PathId {
        if now < self.frozen_until
            && let Some(path) = self.best_confirmed(now, Duration::MAX)
        {
            return path;
        }
        self.rotate_usable()
    }

    pub(super) fn rotate_usable(&mut self) -> PathId {
        self.rotate(|slot| {
            if slot.state != PathState::Good {
                return false;
            }
            let clean = slot.penalty == 0;
            slot.penalty = slot.penalty.saturating_sub(1);
            clean
        })
    }

    /// Walks the rotation to the first slot that `takes`; at most `PENALTY_MAX` turns, then
    /// whatever comes next.
    fn rotate(&mut self, mut takes: impl FnMut(&mut Slot) -> bool) -> PathId {
        for _ in 0..self.slots.len() * (1 + PENALTY_MAX as usize) {
            let path = self.step();
            if takes(&mut self.slots[path as usize]) {
                return PathId(path);
            }
        }
        PathId(self.step())
    }

    fn step(&mut self) -> u8 {
        if self.cursor >= self.order.len() {
            self.cursor = 0;
            self.rng.shuffle(&mut self.order);
        }
        self.cursor += 1;
        self.order[self.cursor - 1]
    }
}
