//! **Silence**: how long a peer has owed an answer, and when it is given up for that.
//!
//! The time in which this endpoint itself was not called although a timer was due (a stopped
//! process, a suspended machine, a stalled thread) is not the peer's: it is taken off. An
//! ICMP error that reports a peer as unreachable is forgeable, so it is a hint: it shortens
//! the time only of a peer that answered before, and anything authentic from the peer takes it
//! back.

use super::Peer;
use crate::config::Config;
use crate::event::Unreachable;
use crate::time::{Duration, Instant};

/// Pauses of our own that are taken off one silence. A caller that is late every time must still
/// find out that its peer is dead.
const PAUSES_MAX: u8 = 16;
/// ICMP errors since the last packet of the peer that are needed to be believed.
const HINTS_MIN: u32 = 2;
/// How long a peer has to prove hints wrong. Several probes and repetitions leave meanwhile, and a
/// process may be restarted.
const HINTED_PATIENCE: Duration = Duration::from_millis(700);

/// How long a peer has owed an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// When something was first outstanding with no answer since.
    since: Instant,
    /// Pauses of our own in it.
    paused: Duration,
    pauses: u8,
}

/// ICMP errors about a peer since its last packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hints {
    kind: Unreachable,
    first_at: Instant,
    count: u32,
}

impl Silence {
    /// No answer is owed.
    pub(crate) const NONE: Self =
        Self { since: Instant::FAR_FUTURE, paused: Duration::ZERO, pauses: 0 };

    /// Whether an answer is owed.
    pub(crate) fn is_on(&self) -> bool {
        self.since != Instant::FAR_FUTURE
    }

    /// Something is outstanding: an answer is owed from now on, if it was not before.
    pub(crate) fn begin(&mut self, now: Instant) {
        if !self.is_on() {
            self.since = now;
        }
    }

    /// An answer came; whether more is owed.
    pub(crate) fn answered(&mut self, now: Instant, more: bool) {
        *self = if more { Self { since: now, ..Self::NONE } } else { Self::NONE };
    }

    /// Takes off a pause of our own, unless that makes more than `most` of them.
    fn forgive(&mut self, pause: Duration, most: Duration) {
        let paused = self.paused + pause;
        // H8
        if self.is_on() && self.pauses < PAUSES_MAX && paused <= most {
            self.paused = paused;
            self.pauses += 1;
        }
    }
}

impl Peer {
    /// When the peer is given up, if nothing arrives from it; [`Instant::FAR_FUTURE`]: it owes
    /// nothing.
    pub(super) fn given_up_at(&self, config: &Config) -> Instant {
        let Some(tx) = self.tx.as_deref().filter(|tx| tx.silence.is_on()) else {
            return Instant::FAR_FUTURE;
        };
        let Silence { since, paused, .. } = tx.silence;
        // H8
        let at = since + paused + config.patience(self.has_received);
        // H8a
        match self.hints.filter(|hints| self.has_received && hints.count >= HINTS_MIN) {
            Some(hints) => at.min(hints.first_at.max(since + paused) + HINTED_PATIENCE),
            None => at,
        }
    }

    /// This endpoint stood still for so long. Not forgiven where the peer may have forgotten the
    /// context meanwhile, for it would take what is repeated for new: hibernated contexts of named
    /// peers are never forgotten, others after `idle_reclaim`.
    pub(crate) fn forgive(&mut self, pause: Duration, config: &Config) {
        let kept = self.configured && config.idle_hibernate != Duration::MAX;
        let most = if kept { Duration::MAX } else { config.idle_reclaim.over(2) };
        if let Some(tx) = self.tx.as_deref_mut() {
            tx.silence.forgive(pause, most);
        }
        self.hints = None;
    }

    /// An ICMP error reports the peer as unreachable.
    pub(crate) fn on_unreachable(&mut self, now: Instant, kind: Unreachable) {
        let before = self.hints.unwrap_or(Hints { kind, first_at: now, count: 0 });
        self.hints = Some(Hints { kind, count: before.count.saturating_add(1), ..before });
    }

    /// The last ICMP error about the peer, unless a packet of the peer arrived since.
    pub(crate) fn unreachable(&self) -> Option<Unreachable> {
        self.hints.map(|hints| hints.kind)
    }
}
