//! Scheduling of a worker thread's time: instances share it by weight.
//!
//! A tenant is an instance, or another source of work for the worker. The next turn goes to the
//! tenant with work that has used the least time relative to its weight. Time is the measured cost
//! of the tenant's batches, so a packet that the rules have to evaluate counts with its real cost.
//! Time that one tenant does not need goes to the other tenants. A tenant that becomes active again
//! comes before all tenants that have used their shares: it waits only for the current batch.
//!
//! ```text
//! loop {
//!     for each device with frames, or in a busy loop for each:
//!         tenants.wake(card.tenant_of(port))
//!     until there are others to serve (the underlay, timers; 200 us, say):
//!         let Some(turn) = tenants.next() else { break };
//!         let began = clock::now();
//!         // From the devices of this instance in turns, at most `turn.frames` in all.
//!         let frames = read(turn.tenant, turn.frames);
//!         card.from_guest_all(now, port, frames, around);
//!         if turn.waited { card.count_over_share(port, frames) }
//!         tenants.end(turn, frames, clock::now() - began);
//! }
//! ```
//!
//! A tenant may cause work outside of its turns, such as packets that arrive for it. The caller
//! charges the tenant for this work by [`Tenants::charge`], or makes all packets from other hosts a
//! tenant of their own.
//!
//! # Invariants
//! The used time of all tenants is compared on one scale, virtual time, which advances with the
//! tenant that has the turn. A tenant keeps unused time only up to [`Settings::credit`], so it
//! cannot delay the other tenants for long after a long pause.
//!
//! # Bounds
//! At most [`TENANTS_MAX`] tenants. A turn has as many frames as probably take
//! [`Settings::slice`], at least one and at most [`Settings::frames_max`]. A call costs one search
//! among the tenants.
//!
//! The rules are those of `docs/spec/card.md`, section 9.

use alloc::collections::{BTreeMap, BTreeSet};

use srd_proto::time::Duration;

/// Largest number of tenants of a worker.
pub const TENANTS_MAX: usize = 4096;
/// Largest weight of a tenant.
pub const WEIGHT_MAX: u32 = 1 << 16;
/// Assumed cost of a frame, in nanoseconds, for a tenant that has had no turn yet.
const FRAME_NS_FIRST: u64 = 1000;
/// Divisor by which the expected cost of a frame falls slowly: after a cheaper turn, it decreases
/// by this fraction of the difference.
const FALLS_BY: u64 = 8;

/// Identifier of a tenant: for an instance of a card, the result of
/// [`crate::vpc::Card::tenant_of`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct TenantId(pub u32);

/// Parameters of the scheduling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Target for the longest turn, which is the wait of a tenant that becomes active again.
    pub slice: Duration,
    /// Largest number of frames in a turn.
    pub frames_max: u32,
    /// Unused time that a tenant may keep for a short burst within its share. The value applies to
    /// a tenant of weight 1; other tenants keep more, in proportion to their weight.
    pub credit: Duration,
}

impl Default for Settings {
    /// Returns settings with turns of at most 32 frames (twice as many as a card handles at once),
    /// and with credit for bursts of a few hundred packets.
    fn default() -> Self {
        let (slice, credit) = (Duration::from_micros(20), Duration::from_micros(200));
        Self { slice, frames_max: 32, credit }
    }
}

/// A turn of a tenant: permission to send a number of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "it ends with Tenants::end"]
pub struct Turn {
    /// The tenant that has the turn.
    pub tenant: TenantId,
    /// Number of frames that the tenant may send in this turn.
    pub frames: u32,
    /// Whether the tenant's frames have waited while other tenants had their turns. If so, the
    /// tenant has used up its share, and each frame of this turn counts in `pps_allowance_exceeded`
    /// (N4).
    pub waited: bool,
}

/// Time, turns and frames that a tenant has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// Time that the worker has spent for the tenant.
    pub spent: Duration,
    /// Number of turns that have ended.
    pub turns: u64,
    /// Number of frames that the tenant sent in its turns.
    pub frames: u64,
    /// Number of frames that had to wait, because the tenant had used up its share.
    pub waited: u64,
}

/// State of a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TenantState {
    /// The tenant has no work.
    Idle,
    /// The tenant has work, and waits for its turn.
    Waits,
    /// The tenant has its turn.
    Runs,
}

#[derive(Debug)]
struct Tenant {
    weight: u32,
    place: TenantState,
    /// Time used, relative to the tenant's weight.
    used: u128,
    /// Expected cost of a frame, in nanoseconds.
    frame_ns: u64,
    /// Value of [`Tenants`]' turn counter when the tenant's last turn ended with work left.
    left_at: Option<u64>,
    total: Used,
}

/// The tenants of a worker, and the selection of the next turn.
#[derive(Debug)]
pub struct Tenants {
    settings: Settings,
    tenants: BTreeMap<TenantId, Tenant>,
    /// Tenants that wait for their turn, in the order of their used time relative to weight.
    waiting: BTreeSet<(u128, TenantId)>,
    running: Option<TenantId>,
    /// Virtual time: the largest used time (relative to weight) that a tenant had when its turn
    /// began.
    line: u128,
    /// Number of turns in which frames were read.
    turns: u64,
}

impl Tenants {
    /// Creates an empty set of tenants.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            tenants: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: None,
            line: 0,
            turns: 0,
        }
    }

    /// Adds a tenant, or changes its weight. A tenant's share is its weight divided by the sum of
    /// the weights of all tenants with work. Returns `false` if a new tenant would exceed
    /// [`TENANTS_MAX`].
    pub fn add(&mut self, id: TenantId, weight: u32) -> bool {
        let weight = weight.clamp(1, WEIGHT_MAX);
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.weight = weight;
            return true;
        }
        if self.tenants.len() >= TENANTS_MAX {
            return false;
        }
        let tenant = Tenant {
            weight,
            place: TenantState::Idle,
            used: self.line,
            frame_ns: FRAME_NS_FIRST,
            left_at: None,
            total: Used::default(),
        };
        self.tenants.insert(id, tenant);
        true
    }

    /// Removes a tenant.
    pub fn remove(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.remove(&id) {
            self.waiting.remove(&(tenant.used, id));
        }
        self.running = self.running.filter(|running| *running != id);
    }

    /// Records that a tenant has work, so that it gets a turn. Changes nothing for a tenant that
    /// has work already.
    pub fn wake(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&id).filter(|t| t.place == TenantState::Idle)
        else {
            return;
        };
        let kept = scaled(self.settings.credit, 1);
        tenant.used = tenant.used.max(self.line.saturating_sub(kept)); // N3
        tenant.left_at = None;
        tenant.place = TenantState::Waits;
        self.waiting.insert((tenant.used, id));
    }

    /// Returns the next turn, for the tenant with work that has used the least of its share. If the
    /// caller has not ended the last turn, it ends without cost, and its tenant still has work.
    /// Returns `None` if no tenant has work.
    #[allow(clippy::should_implement_trait)] // a turn has to be ended before the next one
    pub fn next(&mut self) -> Option<Turn> {
        if let Some(running) = self.running.take() {
            self.put_back(running);
        }
        let (used, id) = self.waiting.pop_first()?;
        let tenant = self.tenants.get_mut(&id)?;
        tenant.place = TenantState::Runs;
        self.line = self.line.max(used);
        let waited = tenant.left_at.is_some_and(|turns| turns != self.turns);
        self.running = Some(id);
        let likely = self.settings.slice.as_nanos() / tenant.frame_ns.max(1); // N2
        let likely = u32::try_from(likely).unwrap_or(u32::MAX);
        let frames = likely.clamp(1, self.settings.frames_max.max(1));
        Some(Turn { tenant: id, frames, waited })
    }

    /// Ends a turn in which `frames` frames were read in the time `spent`. If these are fewer
    /// frames than the turn allowed, the tenant counts as without work until [`Tenants::wake`].
    pub fn end(&mut self, turn: Turn, frames: u32, spent: Duration) {
        self.charge(turn.tenant, spent);
        let Some(tenant) = self.tenants.get_mut(&turn.tenant) else { return };
        tenant.total.turns += 1;
        tenant.total.frames += u64::from(frames);
        tenant.total.waited += u64::from(frames) * u64::from(turn.waited);
        if frames > 0 {
            self.turns += 1;
            // A turn that was too long must not be repeated: the cost rises at once, and falls
            // slowly.
            let now = spent.as_nanos() / u64::from(frames);
            let falls = tenant.frame_ns.saturating_sub(now) / FALLS_BY;
            tenant.frame_ns = now.max(tenant.frame_ns - falls).max(1);
        }
        if self.running != Some(turn.tenant) {
            return;
        }
        self.running = None;
        if frames < turn.frames {
            tenant.place = TenantState::Idle;
        } else {
            self.put_back(turn.tenant);
        }
    }

    /// Charges a tenant for time that was used outside of its turns. // N1
    pub fn charge(&mut self, id: TenantId, spent: Duration) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let waits = self.waiting.remove(&(tenant.used, id));
        tenant.used = tenant.used.saturating_add(scaled(spent, tenant.weight));
        tenant.total.spent = tenant.total.spent + spent;
        if waits {
            self.waiting.insert((tenant.used, id));
        }
    }

    fn put_back(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        tenant.place = TenantState::Waits;
        tenant.left_at = Some(self.turns);
        self.waiting.insert((tenant.used, id));
    }

    /// Whether no tenant has work.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_none()
    }

    /// Returns the time, turns and frames that a tenant has used.
    pub fn used(&self, id: TenantId) -> Used {
        self.tenants.get(&id).map(|tenant| tenant.total).unwrap_or_default()
    }
}

/// Returns a time relative to a weight: in nanoseconds, multiplied by [`WEIGHT_MAX`] and divided by
/// the weight.
fn scaled(spent: Duration, weight: u32) -> u128 {
    u128::from(spent.as_nanos()) * u128::from(WEIGHT_MAX) / u128::from(weight.max(1))
}

#[cfg(test)]
mod tests;
