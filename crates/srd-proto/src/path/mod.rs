//! The paths of a context: a table of slots. Each slot has its present entropy, its recent latency
//! and losses, and a state that decides whether it may carry data.
//!
//! | state | meaning | ends when |
//! |---|---|---|
//! | `Good` | carries data | it gets a penalty, or a packet on it is lost |
//! | `Skip` (`Good`, penalty) | skipped as many times as its penalty | it was skipped, or after 1 s |
//! | `AssumedBad` | packet or probe lost: carries probes only | two probes in a row are answered |
//! | `Denied` | excluded by the operator | the operator allows it again |
//!
//! *Dead* (P7) is a property of a path in addition to its state: the path had [`DEAD_AFTER`] losses
//! or unanswered probes in a row, while other paths passed packets. It becomes `AssumedBad` even if
//! half of all paths are bad, and a mass failure (P8) does not restore it.
//!
//! | file | content |
//! |---|---|
//! | `select` | selection of the next packet's path |
//! | `health` | the effect of acknowledgements, delays and losses |
//! | `probe` | probes, and the effect of their answers and of missing answers |
//! | `explore` | search for better paths than those in use |
//!
//! Congestion control does not distinguish paths; path selection does not depend on windows.

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

/// State of a path, which decides whether the path may carry data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PathState {
    Good,
    AssumedBad,
    Denied,
}

/// Maximum penalty of a path: the number of times that the rotation skips the path.
const PENALTY_MAX: u8 = 15;
/// Time after which a penalty counts as zero.
const PENALTY_LASTS: Duration = Duration::from_secs(1);
/// Losses and unanswered probes in a row, while other paths pass packets, that make a path dead. A
/// dead path is condemned whatever the number of condemned paths.
const DEAD_AFTER: u8 = 3;

/// A slot of the table of paths: the state of one path.
#[derive(Debug)]
struct Slot {
    state: PathState,
    entropy: u16,
    generation: u8,
    penalty: u8,
    penalised_at: Instant,
    /// Number of losses and unanswered probes since the path was last confirmed. Events within one
    /// round trip count once.
    fails: u8,
    failed_at: Instant,
    /// Whether any packet ever passed the path.
    passed: bool,
    /// Number of probes answered in a row while the path was assumed bad.
    answers: u8,
    /// Whether the path was probed alone, because of unreliable packets (P16), and not along with
    /// all unconfirmed paths (P15).
    watched: bool,
    /// Whether the last probe on this path is still unanswered.
    awaiting: bool,
    /// Whether the path has an entry in the ring of recently confirmed paths.
    in_ring: bool,
    delay_ns: u32,
    /// The two highest PSNs that were acknowledged in this generation, each plus one; 0 before the
    /// first.
    acked: [u64; 2],
    confirmed_at: Instant,
    /// Whether a packet or a probe left on this path after its last confirmation.
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
    /// Slot numbers in the order in which the rotation uses them, shuffled again at the end of each
    /// turn.
    order: Vec<u8>,
    cursor: usize,
    /// Ring of the paths that were confirmed recently, oldest first. Bound: one entry for each
    /// path.
    ring: VecDeque<(u8, Instant)>,
    exploration: Exploration,
    policy: Spray,
    /// Number of entropy values from which a single path chooses.
    entropies: u16,
    rng: Rng,
    bad: u16,
    denied: u16,
    /// Start of the interval of two round trips in which losses count towards a mass failure (P8).
    burst_since: Instant,
    /// Number of losses in this interval.
    burst_bad: u16,
    frozen_until: Instant,
    impaired_since: Option<Instant>,
    /// Time at which the earliest probe of any path is due.
    probe_due: Instant,
    /// End of the pause in which unconfirmed paths are not probed together again (P15).
    asked_until: Instant,
    /// Length of the pause that ends at `asked_until`.
    ask_pause: Duration,
    /// Number of consecutive times that all unconfirmed paths were probed together (P15). A probing
    /// counts as consecutive if it came soon after the pause that followed the previous probing.
    asks_alike: u8,
    /// Number of senders that share the peer as their receiver, as the peer reports it.
    senders: u16,
    /// Number of senders that share this endpoint as their receiver. Answers to our probes wait
    /// behind the packets of these senders.
    own_senders: u16,
    /// Time of the newest confirmation of any path.
    confirmed_at: Instant,
    /// Earliest time of the next probe of a path that carries unreliable packets (P16). Probes for
    /// other reasons do not wait for this time.
    watch_at: Instant,
    /// Whether the previous call of `rare_passing` returned the path that was confirmed last. If
    /// few of the good paths ever passed a packet, every second call returns this path (P10).
    rare_turn: bool,
}

impl PathSet {
    pub(crate) fn new(config: &Config, seed: u64) -> Self {
        // P1: Spread over all paths
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

    /// Returns the present entropy of a path: the value that switches hash.
    pub(crate) fn entropy(&self, path: PathId) -> Entropy {
        Entropy(self.slots[path.0 as usize].entropy)
    }

    /// Path of this entropy. If there are fewer paths than entropy values, the entropy is reduced
    /// modulo their number.
    pub(crate) fn path_of(&self, entropy: Entropy) -> PathId {
        let count = u16::try_from(self.slots.len()).unwrap_or(u16::MAX).max(1);
        PathId(u8::try_from(entropy.0 % count).unwrap_or(0))
    }

    /// Whether the path with this entropy should not be used for control packets: it is assumed
    /// bad, or has not answered a probe yet.
    pub(crate) fn avoids(&self, entropy: Entropy) -> bool {
        let slot = self.slots.get(usize::from(entropy.0)).filter(|s| s.entropy == entropy.0);
        slot.is_some_and(|s| s.awaiting || s.state == PathState::AssumedBad)
    }

    /// Generation of the path's entropy. Acknowledgements of packets of an older generation do not
    /// count for the path.
    pub(crate) fn generation(&self, path: PathId) -> u8 {
        self.slots[path.0 as usize].generation
    }

    /// Second-highest PSN acknowledged on a path. Each smaller PSN on the same path and in the same
    /// generation was overtaken twice (L1).
    pub(crate) fn overtaken_twice_below(&self, path: PathId) -> u64 {
        self.slots[path.0 as usize].acked[1].saturating_sub(1)
    }

    /// Whether no path is bad or denied, so that the state of paths may be forgotten.
    pub(crate) fn may_be_forgotten(&self) -> bool {
        self.policy != Spray::Single && self.bad == 0 && self.denied == 0
    }

    /// Number of paths in each state: good, skipped, assumed bad, denied.
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

    /// Reports of all paths, for monitoring.
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
