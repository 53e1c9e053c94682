//! The paths of a context: a table of slots, each with the entropy that is its current
//! colour, its recent latency and losses, and whether it may carry data.
//!
//! | state | meaning | leaves it when |
//! |---|---|---|
//! | `Good` | carries data | penalised, or a packet on it is lost |
//! | `Skip` (`Good`, penalty) | passed over so many times | visited so often, or after a second |
//! | `AssumedBad` | lost a packet silently, or did not answer: carries probes only | two probes are answered |
//! | `Denied` | taken out by the operator | put back by the operator |
//!
//! Congestion control does not know paths; path selection does not know windows.

mod explore;
mod health;
mod probe;
mod select;

use explore::Exploration;
pub(crate) use health::PathLatency;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::config::{Config, Spray};
use crate::ids::{Entropy, PathId};
use crate::rng::Rng;
use crate::stats::PathReport;
use crate::time::{Duration, Instant};

/// Whether a path may carry data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PathState {
    Good,
    AssumedBad,
    Denied,
}

/// Penalties stop here.
const PENALTY_MAX: u8 = 15;
/// A penalty that is older than this does not count.
const PENALTY_LASTS: Duration = Duration::from_secs(1);
/// A path that swallowed so much in a row, while others passed packets, is dead: that it is one of
/// many does not speak for it.
const DEAD_AFTER: u8 = 3;

/// One path.
#[derive(Debug)]
struct Slot {
    state: PathState,
    entropy: u16,
    generation: u8,
    penalty: u8,
    penalised_at: Instant,
    /// Losses and unanswered probes since something was last confirmed, a round trip apart.
    fails: u8,
    failed_at: Instant,
    /// Whether anything was ever confirmed.
    passed: bool,
    /// Probes answered in a row while assumed bad.
    answers: u8,
    /// Whether it is asked for itself, by a rule of unreliable packets, and not along with all.
    watched: bool,
    /// Whether a probe is out and not answered.
    awaiting: bool,
    /// Whether the path waits in the ring already.
    in_ring: bool,
    delay_ns: u32,
    /// The two highest PSNs of this generation that were acknowledged (plus one; 0: none).
    acked: [u64; 2],
    confirmed_at: Instant,
    /// Whether a packet left on this path since that is not confirmed.
    unproven: bool,
    probe_at: Instant,
    probe_interval: Duration,
    sent_pkts: u32,
    lost_pkts: u32,
}

/// All paths of a context.
#[derive(Debug)]
pub(crate) struct PathSet {
    slots: Vec<Slot>,
    /// Slot numbers in rotation order, reshuffled at each turn.
    order: Vec<u8>,
    cursor: usize,
    /// Paths that were confirmed lately, oldest first. Bound: each path once.
    ring: VecDeque<(u8, Instant)>,
    exploration: Exploration,
    policy: Spray,
    /// Entropy values to choose from.
    entropies: u16,
    rng: Rng,
    bad: u16,
    denied: u16,
    /// Losses of the last two round trips: the mass-failure test.
    burst_since: Instant,
    burst_bad: u16,
    frozen_until: Instant,
    impaired_since: Option<Instant>,
    /// Earliest probe that is due.
    probe_due: Instant,
    /// Until then all paths are not asked again; and how long that was.
    asked_until: Instant,
    ask_pause: Duration,
    /// Times in a row.
    asks_alike: u8,
    /// Senders that share the receiver.
    senders: u16,
    /// Senders that share this endpoint as a receiver: the answers to its probes share their queue.
    own_senders: u16,
    /// When anything was last confirmed, on whatever path.
    confirmed_at: Instant,
    /// Until then no path is probed because of unreliable packets.
    watch_at: Instant,
    /// Whether the last safe choice was one of the few paths that ever passed anything.
    rare_turn: bool,
}

impl PathSet {
    pub(crate) fn new(config: &Config, seed: u64) -> Self {
        // P1
        let count = if config.spray == Spray::Single { 1 } else { config.paths };
        let mut rng = Rng::new(seed);
        let spread = u32::from(config.paths);
        let first = if count == 1 { rng.below(spread) } else { 0 };
        let slots: Vec<Slot> = (0..count)
            .map(|i| Slot {
                state: PathState::Good,
                entropy: u16::try_from((u32::from(i) + first) % spread).unwrap_or(0),
                generation: 0,
                penalty: 0,
                penalised_at: Instant::ZERO,
                fails: 0,
                failed_at: Instant::ZERO,
                passed: false,
                watched: false,
                answers: 0,
                awaiting: false,
                in_ring: false,
                delay_ns: 0,
                acked: [0; 2],
                confirmed_at: Instant::ZERO,
                unproven: false,
                probe_at: Instant::FAR_FUTURE,
                probe_interval: Duration::ZERO,
                sent_pkts: 0,
                lost_pkts: 0,
            })
            .collect();
        let mut order: Vec<u8> = (0..=u8::MAX).take(slots.len()).collect();
        rng.shuffle(&mut order);
        Self {
            slots,
            order,
            cursor: 0,
            ring: VecDeque::new(),
            exploration: Exploration::after(explore::EVERY_MIN),
            policy: config.spray,
            entropies: config.paths,
            rng,
            bad: 0,
            denied: 0,
            burst_since: Instant::ZERO,
            burst_bad: 0,
            frozen_until: Instant::ZERO,
            impaired_since: None,
            probe_due: Instant::FAR_FUTURE,
            asked_until: Instant::ZERO,
            ask_pause: Duration::ZERO,
            asks_alike: 0,
            senders: 1,
            own_senders: 1,
            confirmed_at: Instant::ZERO,
            watch_at: Instant::ZERO,
            rare_turn: false,
        }
    }

    /// The entropy of a path now, which the switches hash.
    pub(crate) fn entropy(&self, path: PathId) -> Entropy {
        Entropy(self.slots[path.0 as usize].entropy)
    }

    /// The path that has this entropy, where every one has a path.
    pub(crate) fn path_of(&self, entropy: Entropy) -> PathId {
        let count = u16::try_from(self.slots.len()).unwrap_or(u16::MAX).max(1);
        PathId(u8::try_from(entropy.0 % count).unwrap_or(0))
    }

    /// Whether this way is assumed bad, or has been asked and not answered.
    pub(crate) fn avoids(&self, entropy: Entropy) -> bool {
        let slot = self.slots.get(usize::from(entropy.0)).filter(|s| s.entropy == entropy.0);
        slot.is_some_and(|s| s.awaiting || s.state == PathState::AssumedBad)
    }

    /// The generation of the path: acknowledgements of older ones do not count for it.
    pub(crate) fn generation(&self, path: PathId) -> u8 {
        self.slots[path.0 as usize].generation
    }

    /// One past the second-highest PSN acknowledged on a path: everything below on the same
    /// path and generation has been overtaken twice.
    pub(crate) fn overtaken_twice_below(&self, path: PathId) -> u64 {
        self.slots[path.0 as usize].acked[1].saturating_sub(1)
    }

    /// Whether nothing is known of a path that must not be forgotten.
    pub(crate) fn may_be_forgotten(&self) -> bool {
        self.policy != Spray::Single && self.bad == 0 && self.denied == 0
    }

    /// Counts: good, skipped, assumed bad, denied.
    pub(crate) fn counts(&self, now: Instant) -> [u16; 4] {
        let mut counts = [0; 4];
        for slot in &self.slots {
            counts[match slot.state {
                PathState::Good if !slot.is_penalised(now) => 0,
                PathState::Good => 1,
                PathState::AssumedBad => 2,
                PathState::Denied => 3,
            }] += 1;
        }
        counts
    }

    /// Every path, for monitoring.
    pub(crate) fn reports(&self, now: Instant) -> Vec<PathReport> {
        let state = |s: &Slot| match s.state {
            PathState::Good if !s.is_penalised(now) => "good",
            PathState::Good => "skip",
            PathState::AssumedBad => "assumed-bad",
            PathState::Denied => "denied",
        };
        let report = |s: &Slot| PathReport {
            entropy: s.entropy,
            state: state(s),
            delay_ns: s.delay_ns,
            sent_pkts: s.sent_pkts.into(),
            lost_pkts: s.lost_pkts.into(),
        };
        self.slots.iter().map(report).collect()
    }
}
