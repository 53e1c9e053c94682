//! Selection of the next packet's path, at the time when the packet leaves. A recently confirmed
//! path comes first, as in REPS: each clean acknowledgement allows its path to be used once more.
//! Without a confirmed path, the next path in a shuffled rotation is used that is neither bad nor
//! penalised.

use super::{PENALTY_MAX, PathId, PathSet, PathState, Slot};
use crate::config::Spray;
use crate::ids::Entropy;
use crate::time::{Duration, Instant};

impl PathSet {
    /// Selects the path of the next packet. `fresh` is the age up to which the confirmation of a
    /// path counts as recent.
    pub(crate) fn pick(&mut self, now: Instant, fresh: Duration) -> PathId {
        match self.policy {
            Spray::Single => PathId(0),
            Spray::Oblivious => self.rotate(|_| true),
            Spray::Adaptive => {
                // P3: Confirmed paths first
                let unknown = self.pick_unknown(now);
                unknown
                    .or_else(|| self.pop_confirmed(now, fresh))
                    .unwrap_or_else(|| self.rotate_adaptive(now))
            }
        }
    }

    /// Selects a path for a packet that is important, such as a retransmission: a recently
    /// confirmed path if there is any. After a timeout no confirmation is recent; then the path
    /// that was confirmed last among the paths on which nothing was sent since. The confirmation
    /// stays in the ring.
    pub(crate) fn pick_safe(&mut self, now: Instant, fresh: Duration) -> PathId {
        if self.policy != Spray::Adaptive {
            return self.pick(now, fresh);
        }
        // P10: Safe path for retransmissions
        let confirmed = self
            .ring
            .iter()
            .copied()
            .find(|(slot, at)| now.since(*at) <= fresh && self.usable(PathId(*slot)));
        match confirmed {
            Some((slot, _)) => PathId(slot),
            None => self
                .best_confirmed(now, fresh.times(4))
                .or_else(|| self.last_proven())
                .or_else(|| self.rare_passing())
                .unwrap_or_else(|| self.rotate_adaptive(now)),
        }
    }

    /// Selects the path of an unreliable packet: the path with the entropy `wanted`, or the next
    /// usable one if that path is bad or in doubt. So a flow stays on one path as long as there is
    /// no indication of a problem.
    pub(crate) fn pick_near(&self, wanted: Entropy) -> PathId {
        if self.policy == Spray::Single {
            return PathId(0);
        }
        let count = self.slots.len().max(1);
        let first = usize::from(wanted.0) % count;
        let near = || (0..count).filter_map(|i| u8::try_from((first + i) % count).ok()).map(PathId);
        let alive = near().find(|path| self.usable(*path) && !self.is_asked(*path));
        alive.or_else(|| near().find(|path| self.usable(*path))).unwrap_or(PathId(0))
    }

    /// Whether a path is in doubt: it is being probed because a timer found a loss, and has not
    /// answered.
    fn is_asked(&self, path: PathId) -> bool {
        let slot = &self.slots[path.0 as usize];
        slot.penalty == PENALTY_MAX && slot.probe_at != Instant::FAR_FUTURE
    }

    fn paths(&self) -> impl Iterator<Item = PathId> {
        (0u8..=u8::MAX).take(self.slots.len()).map(PathId)
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

    /// Path that was confirmed last, among the paths on which nothing was sent since their
    /// confirmation.
    fn last_proven(&self) -> Option<PathId> {
        (0u8..=u8::MAX)
            .zip(&self.slots)
            .filter(|(_, s)| s.state == PathState::Good && !s.unproven)
            .filter(|(_, s)| s.confirmed_at > Instant::ZERO)
            .max_by_key(|(_, s)| s.confirmed_at)
            .map(|(i, _)| PathId(i))
    }

    /// On every second call, if few of the good paths ever passed a packet, returns the path that
    /// was confirmed last. Reason: behind a firewall the only working path, even if it loses
    /// packets, is better than paths that never passed one.
    fn rare_passing(&mut self) -> Option<PathId> {
        let good = self.slots.iter().filter(|s| s.state == PathState::Good);
        let (all, passed) = good.fold((0, 0), |(n, p), s| (n + 1, p + usize::from(s.passed)));
        self.rare_turn = !self.rare_turn && passed > 0 && passed * 4 < all;
        if self.rare_turn { self.best_confirmed(Instant::FAR_FUTURE, Duration::MAX) } else { None }
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

    /// Puts a path at the end of the ring of confirmed paths, unless it has an entry already or is
    /// not good.
    pub(super) fn push_confirmed(&mut self, path: PathId, now: Instant) {
        let slot = &mut self.slots[path.0 as usize];
        if slot.in_ring || slot.state != PathState::Good {
            return;
        }
        slot.in_ring = true;
        self.ring.push_back((path.0, now));
    }

    /// Returns the next path in rotation that carries data and has no penalty. The rotation skips a
    /// path with a penalty, and reduces the penalty by one. During a mass failure (P8), returns the
    /// path that was confirmed last.
    fn rotate_adaptive(&mut self, now: Instant) -> PathId {
        if now < self.frozen_until
            && let Some(path) = self.best_confirmed(now, Duration::MAX)
        {
            return path;
        }
        self.rotate_usable(now)
    }

    pub(super) fn rotate_usable(&mut self, now: Instant) -> PathId {
        let usable = self.slots.len() - usize::from(self.bad + self.denied).min(self.slots.len());
        if usable == 1
            && let Some(path) = self.paths().find(|path| self.usable(*path))
        {
            return path;
        }
        self.rotate(|slot| {
            if slot.state != PathState::Good {
                return false;
            }
            let clean = !slot.is_penalised(now);
            slot.penalty = slot.penalty.saturating_sub(1);
            clean
        })
    }

    /// Advances the rotation to the first slot that `takes` accepts. After 1 + `PENALTY_MAX` turns
    /// without such a slot, returns the next path, whatever its penalty.
    fn rotate(&mut self, mut takes: impl FnMut(&mut Slot) -> bool) -> PathId {
        // P5: Penalties
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
            // P3: Confirmed paths first
            self.rng.shuffle(&mut self.order);
        }
        self.cursor += 1;
        self.order[self.cursor - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const FRESH: Duration = Duration::from_micros(10);

    #[test]
    fn after_a_timeout_the_paths_that_worked_last_are_tried_each_once() {
        let mut paths = PathSet::new(&Config::default(), 1);
        let start = Instant::from_nanos(1000);
        for path in [5, 9, 7] {
            paths.on_sent(PathId(path));
            paths.on_acked(start + FRESH.times(path.into()), PathId(path), 0, path.into());
        }
        // This path was used after its confirmation.
        paths.on_sent(PathId(9));
        let later = start + FRESH.times(1000);
        assert_eq!(paths.pick_safe(later, FRESH), PathId(7));
        assert_eq!(paths.pick_safe(later, FRESH), PathId(7), "nothing has been sent");
        paths.on_probe_sent(PathId(7));
        assert_eq!(paths.pick_safe(later, FRESH), PathId(5));
        paths.on_sent(PathId(5));
        assert_ne!(paths.pick_safe(later, FRESH), paths.pick_safe(later, FRESH), "any");
        paths.on_probe_answer(later, PathId(7));
        assert_eq!(paths.pick_safe(later + FRESH.times(1000), FRESH), PathId(7));
    }
}
