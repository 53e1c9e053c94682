//! **Silence**: the time for which a peer has owed an answer. When it is too long, the peer is
//! given up.
//!
//! A pause of this endpoint itself does not count as silence: time in which the endpoint was not
//! called although a timer was due (a stopped process, a suspended machine, a stalled thread). An
//! ICMP error that reports a peer as unreachable can be forged, so it is a hint. Hints shorten the
//! time only of a peer that answered before. Any authentic packet of the peer cancels all hints.

use crate::config::Config;
use crate::event::Unreachable;
use crate::peer::Peer;
use crate::time::{Duration, Instant};

/// Maximum number of pauses of this endpoint that are excluded from one silence. If the caller is
/// late every time, the endpoint must nevertheless detect that its peer is dead.
const PAUSES_MAX: u8 = 16;
/// Minimum number of ICMP errors since the last packet of the peer. A smaller number of errors is
/// ignored.
const HINTS_MIN: u32 = 2;
/// Time after the first hint (an ICMP error) within which the peer has to show that it is alive.
/// The time is long enough for several probes and retransmissions, and for a process to be
/// restarted.
const HINTED_PATIENCE: Duration = Duration::from_millis(700);

/// Time for which a peer has owed an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// Time since which the peer has owed an answer; [`Instant::FAR_FUTURE`] if it owes no answer.
    since: Instant,
    /// Sum of the pauses of this endpoint that are excluded from the silence.
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
    /// A peer that owes no answer.
    pub(crate) const NONE: Self =
        Self { since: Instant::FAR_FUTURE, paused: Duration::ZERO, pauses: 0 };

    /// Whether the peer owes an answer.
    pub(crate) fn is_on(&self) -> bool {
        self.since != Instant::FAR_FUTURE
    }

    /// Begins a silence, because a packet that needs an answer was sent. If an answer is already
    /// owed, nothing changes.
    pub(crate) fn begin(&mut self, now: Instant) {
        if !self.is_on() {
            self.since = now;
        }
    }

    /// Records an answer. `more`: the peer still owes answers to other packets.
    pub(crate) fn answered(&mut self, now: Instant, more: bool) {
        *self = if more { Self { since: now, ..Self::NONE } } else { Self::NONE };
    }

    /// Excludes a pause of this endpoint from the silence, unless the excluded pauses would
    /// together be longer than `most`.
    fn forgive(&mut self, pause: Duration, most: Duration) {
        let paused = self.paused + pause;
        // H8: Peer timeout
        if self.is_on() && self.pauses < PAUSES_MAX && paused <= most {
            self.paused = paused;
            self.pauses += 1;
        }
    }
}

impl Peer {
    /// Time when the peer is given up if no packet arrives from it; [`Instant::FAR_FUTURE`] if the
    /// peer owes no answer.
    pub(in crate::peer) fn given_up_at(&self, config: &Config) -> Instant {
        let Some(tx) = self.tx.as_deref().filter(|tx| tx.silence.is_on()) else {
            return Instant::FAR_FUTURE;
        };
        let Silence { since, paused, .. } = tx.silence;
        // H8: Peer timeout
        let at = since + paused + config.patience(self.has_received);
        // H8a: ICMP errors are hints
        match self.hints.filter(|hints| self.has_received && hints.count >= HINTS_MIN) {
            Some(hints) => at.min(hints.first_at.max(since + paused) + HINTED_PATIENCE),
            None => at,
        }
    }

    /// Excludes a pause of this endpoint from the peer's silence. Excluded pauses are limited by
    /// the time after which the peer forgets the context, because it would then treat
    /// retransmissions as new datagrams. This is `idle_reclaim`, except for named peers if contexts
    /// hibernate: those are never forgotten.
    pub(crate) fn forgive(&mut self, pause: Duration, config: &Config) {
        let kept = self.configured && config.idle_hibernate != Duration::MAX;
        let most = if kept { Duration::MAX } else { config.idle_reclaim.over(2) };
        if let Some(tx) = self.tx.as_deref_mut() {
            tx.silence.forgive(pause, most);
        }
        self.hints = None;
    }

    /// Records an ICMP error that reports the peer as unreachable.
    pub(crate) fn on_unreachable(&mut self, now: Instant, kind: Unreachable) {
        let before = self.hints.unwrap_or(Hints { kind, first_at: now, count: 0 });
        self.hints = Some(Hints { kind, count: before.count.saturating_add(1), ..before });
    }

    /// Kind of the last ICMP error about the peer, unless a packet of the peer arrived since.
    pub(crate) fn unreachable(&self) -> Option<Unreachable> {
        self.hints.map(|hints| hints.kind)
    }
}
