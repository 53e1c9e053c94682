//! Timers of a peer.

use super::{Peer, Tx};
use crate::config::Config;
use crate::shared::Shared;
use crate::time::{Duration, Instant};

/// Part of the keepalive time, as a divisor, after which a peer is probed that has not answered a
/// packet.
const UNANSWERED_PART: u64 = 4;
/// Part of the keepalive time, as a divisor, after which a peer that has not answered a probe is
/// probed again, on other paths, until it answers or is given up.
const PROBED_PART: u64 = 8;
/// Number of tail probes in a row without an answer after which all unconfirmed paths are probed.
/// One is not enough: a receiver with many senders may answer late.
const PROBES_IN_VAIN: u8 = 2;
/// Part of the target delay, as a divisor, that the first tail probe after data waits in addition
/// to a round trip. With half or all of the target, the repair of a lost burst takes longer, and a
/// path that is dead from the start is detected later (`docs/perf-notes.md`, 2026-11-23).
const FIRST_PROBE_TARGET_PART: u64 = 4;

/// State of the first tail probe after data (L5), which follows the last data through the same
/// queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstProbe {
    /// The probe has not left yet. The time is the time of the last data packet.
    After(Instant),
    /// The probe has left and is unanswered.
    Out,
    /// A packet of the peer has arrived since the probe left.
    Answered,
}

impl FirstProbe {
    /// Records that the peer has acknowledged something new.
    pub(super) fn answered(self) -> Self {
        if self == Self::Out { Self::Answered } else { self }
    }
}

impl Peer {
    /// Earliest time at which a timer of this peer is due.
    pub(crate) fn next_timeout(&self, shared_config: &Config) -> Instant {
        let mut at = Instant::FAR_FUTURE;
        if let Some(rx) = &self.rx {
            at = at.min(rx.ack_due);
        }
        if self.wants_session() && shared_config.protection.is_on() {
            at = at.min(self.protected.hello_at());
        }
        if let Some(tx) = &self.tx {
            at = at.min(tx.probe_at).min(tx.rto_at).min(tx.departure_at);
            if tx.queue.has_rnr() {
                at = at.min(tx.rnr_until);
            }
            if self.remote_context != 0 {
                at = at.min(tx.paths.probe_due());
            }
            at = at.min(self.mtu_probe_at());
        }
        at.min(self.given_up_at(shared_config)).min(self.idle_at(shared_config))
    }

    /// Time of the next probe of a packet size. Such probes are large, and anyone can send a
    /// greeting with the address of another host. Therefore the first probe waits until a packet of
    /// the peer has named our context.
    pub(crate) fn mtu_probe_at(&self) -> Instant {
        // E3: Path MTU discovery
        let tx = self.tx.as_deref().filter(|_| self.greeted);
        tx.map_or(Instant::FAR_FUTURE, |tx| tx.mtu.probe_at)
    }

    /// Time when the context will have been idle for long enough to hibernate, to be removed, or to
    /// send a keepalive probe.
    fn idle_at(&self, config: &Config) -> Instant {
        let reclaim =
            if self.may_be_forgotten(config) { config.idle_reclaim } else { Duration::MAX };
        let hibernate =
            if self.may_hibernate(config) { config.idle_hibernate } else { Duration::MAX };
        let quiet = reclaim.min(hibernate);
        let idle =
            if quiet == Duration::MAX { Instant::FAR_FUTURE } else { self.active_at() + quiet };
        idle.min(self.keepalive_at(config))
    }

    /// Time of the keepalive probe, if a keepalive is configured.
    fn keepalive_at(&self, config: &Config) -> Instant {
        let keepalive = config.keepalive;
        let Some(tx) = self.tx.as_deref().filter(|_| keepalive != Duration::MAX) else {
            return Instant::FAR_FUTURE;
        };
        // H10: Keepalive
        let idle = self.active_at() + keepalive;
        if tx.silence.is_on() {
            idle.min(tx.last_sent_at + keepalive.over(PROBED_PART))
        } else if self.first_sent_at != Instant::FAR_FUTURE {
            idle.min(self.first_sent_at + keepalive.over(UNANSWERED_PART))
        } else {
            idle
        }
    }

    /// Time when a packet to or from the peer was last sent or received.
    pub(crate) fn active_at(&self) -> Instant {
        let hibernated = self.hibernated.as_ref().map_or(Instant::ZERO, |kept| kept.last_sent_at());
        let sent = self.tx.as_ref().map_or(hibernated, |tx| tx.last_sent_at);
        self.received_at_last.max(sent)
    }

    /// Runs the timers that are due. Returns whether the peer may have something to send.
    pub(crate) fn on_timeout(&mut self, now: Instant, shared: &mut Shared) -> bool {
        let mut ready = self.rx.as_ref().is_some_and(|rx| rx.ack_is_due(now))
            || self.wants_session() && self.protected.hello_at() <= now;
        let config = &shared.node.config;
        if now >= self.given_up_at(config) {
            self.give_up(now, shared);
            return true;
        }
        if self.may_hibernate(config) && now >= self.active_at() + config.idle_hibernate {
            self.hibernate();
        }
        let Some(tx) = self.tx.as_deref_mut() else { return ready };
        if tx.departure_at <= now {
            tx.departure_at = Instant::FAR_FUTURE;
            ready = true;
        }
        if tx.queue.has_rnr() && tx.rnr_until <= now {
            tx.queue.retry_rnr();
            ready = true;
        }
        if tx.rto_at <= now {
            shared.stats.retrans_timeout_events += 1;
            tx.rto_backoff = tx.rto_backoff.saturating_add(1).min(16);
            tx.window.on_timeout();
            tx.set_pace(now, config);
            tx.paths.on_timeout();
            tx.lose_all(now);
            tx.last_progress_at = now;
            tx.arm(config);
            ready = true;
        }
        if tx.probe_at <= now {
            tx.paths.set_own_senders(shared.senders());
            tx.count_probe(now);
            tx.probe_due = true;
            tx.last_sent_at = now;
            tx.silence.begin(now);
            tx.arm(config);
            ready = true;
        }
        ready |= self.remote_context != 0 && tx.paths.probe_due() <= now;
        ready |= self.mtu_probe_at() <= now;
        ready |= self.keep_alive(now, shared);
        ready
    }

    /// If the keepalive probe of this context is due, makes it the next packet. Returns whether the
    /// probe is due.
    fn keep_alive(&mut self, now: Instant, shared: &Shared) -> bool {
        if now < self.keepalive_at(&shared.node.config) {
            return false;
        }
        let Some(tx) = self.tx.as_deref_mut() else { return false };
        tx.probe_due = true;
        tx.mtu.on_departure(now);
        tx.last_sent_at = now;
        tx.silence.begin(now);
        true
    }

    /// Whether the context has been idle, with nothing outstanding, for long enough to release its
    /// memory.
    pub(crate) fn is_reclaimable(&self, now: Instant, config: &Config) -> bool {
        self.may_be_forgotten(config)
            && config.idle_reclaim != Duration::MAX
            && now >= self.active_at() + config.idle_reclaim
    }

    /// Whether the context is idle and may be removed. A context that hibernates may not: the two
    /// ends would not remove it at the same moment, and datagrams sent in between would fail.
    fn may_be_forgotten(&self, config: &Config) -> bool {
        let hibernates = self.configured && config.idle_hibernate != Duration::MAX;
        self.is_idle() && !hibernates
    }

    /// Whether nothing to this peer is outstanding, and there is state that could be removed.
    fn is_idle(&self) -> bool {
        let idle = self.tx.as_ref().is_none_or(|tx| !tx.has_work());
        idle && (self.has_context() || !self.configured)
    }
}

impl Tx {
    /// Time of the first tail probe, if it has not left yet (L5).
    pub(super) fn first_probe_at(&self, ack_wait: Duration, config: &Config) -> Instant {
        let FirstProbe::After(sent_at) = self.first_probe else { return Instant::FAR_FUTURE };
        let round_trip = self.rtt.base().max(self.rtt.smoothed());
        let late = self.window.target().over(FIRST_PROBE_TARGET_PART).max(config.delay_target_min);
        sent_at + round_trip + late + ack_wait
    }

    /// Counts a tail probe that leaves. The first probe after data only requests an Ack. Each
    /// further probe means that a pause has passed without an answer.
    fn count_probe(&mut self, now: Instant) {
        if matches!(self.first_probe, FirstProbe::After(_)) {
            self.first_probe = FirstProbe::Out;
            return;
        }
        self.probe_backoff = self.probe_backoff.saturating_add(1).min(16);
        if self.probe_backoff == 1 + PROBES_IN_VAIN {
            self.ask_all_paths(now, self.last_sent_at);
        }
    }
}
