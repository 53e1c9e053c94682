//! The order in which a worker reads what instances send: they share its time by weight.
//!
//! A tenant is an instance, or whatever else has work for the worker. The tenant with work that has
//! used the least time, in the measure of its weight, has the next turn; time is what its batches
//! have cost, as the caller measured it, so that a packet which the rules have to judge costs what
//! it costs. Time that a tenant has no work for goes to those that have. A tenant that comes back
//! stands before all that have used their shares: it waits for the batch that runs, and no longer.
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
//! Work for a tenant that is no turn of its own, such as packets that arrive for it, is charged
//! with [`Tenants::charge`]; or all that arrives from other hosts is a tenant of its own.
//!
//! # Invariants
//! Time used is compared along one line, virtual time, which moves with the tenant that has the
//! turn. Unused time is kept for [`Settings::credit`] only, so that a long pause gives no right to
//! hold up the others for as long.
//!
//! # Bounds
//! [`TENANTS_MAX`] tenants; a turn is as many frames as are likely to take [`Settings::slice`], at
//! least one and at most [`Settings::frames_max`]; a call costs a search among the tenants.
//!
//! The rules are those of `docs/spec/card.md`, section 9.

use alloc::collections::{BTreeMap, BTreeSet};

use srd_proto::time::Duration;

/// Most tenants of a worker.
pub const TENANTS_MAX: usize = 4096;
/// Most weight of a tenant.
pub const WEIGHT_MAX: u32 = 1 << 16;
/// A frame of a tenant of which nothing is known yet is taken to cost so much.
const FRAME_NS_FIRST: u64 = 1000;
/// The part by which the cost of a frame falls with a cheaper turn: one of so many.
const FALLS_BY: u64 = 8;

/// Names a tenant: for an instance of a card it is [`crate::vpc::Card::tenant_of`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct TenantId(pub u32);

/// How time is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long a turn should take at most: a tenant that comes back waits so long.
    pub slice: Duration,
    /// Most frames of a turn.
    pub frames_max: u32,
    /// Unused time that a tenant keeps, in time of a tenant of weight 1: a short burst counts as
    /// within its share.
    pub credit: Duration,
}

impl Default for Settings {
    /// As many frames as a card takes at once, twice; and bursts of a few hundred packets.
    fn default() -> Self {
        let (slice, credit) = (Duration::from_micros(20), Duration::from_micros(200));
        Self { slice, frames_max: 32, credit }
    }
}

/// A tenant may be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "it ends with Tenants::end"]
pub struct Turn {
    /// The tenant.
    pub tenant: TenantId,
    /// Frames that it may send in this turn.
    pub frames: u32,
    /// Its frames have waited since others had their turns: it has used up its share, and each
    /// frame of this turn counts in `pps_allowance_exceeded` (N4).
    pub waited: bool,
}

/// What a tenant has had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// Time.
    pub spent: Duration,
    /// Turns.
    pub turns: u64,
    /// Frames of its turns.
    pub frames: u64,
    /// Those of them that had to wait for its share.
    pub waited: u64,
}

/// Where a tenant is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// It has no work.
    Idle,
    /// It has work, and waits for its turn.
    Waits,
    /// It has its turn.
    Runs,
}

#[derive(Debug)]
struct Tenant {
    weight: u32,
    place: Place,
    /// The time that it has used, in the measure of its weight.
    used: u128,
    /// The likely cost of a frame.
    frame_ns: u64,
    /// The turns of all tenants in which frames were read, when its last one ended with work left.
    left_at: Option<u64>,
    total: Used,
}

/// The tenants of a worker.
#[derive(Debug)]
pub struct Tenants {
    settings: Settings,
    tenants: BTreeMap<TenantId, Tenant>,
    /// Those that wait for their turn, in the order of the time that they have used.
    waiting: BTreeSet<(u128, TenantId)>,
    running: Option<TenantId>,
    /// The time that the tenant which had the last turn had used then.
    line: u128,
    /// Turns in which frames were read.
    turns: u64,
}

impl Tenants {
    /// Without tenants.
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

    /// Adds a tenant, or gives it another weight: its share is its weight by the sum of the weights
    /// of all that have work. Returns whether there is room for it ([`TENANTS_MAX`]).
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
            place: Place::Idle,
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

    /// A tenant has work. Without effect if that is known.
    pub fn wake(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&id).filter(|t| t.place == Place::Idle) else {
            return;
        };
        let kept = scaled(self.settings.credit, 1);
        tenant.used = tenant.used.max(self.line.saturating_sub(kept)); // N3
        tenant.left_at = None;
        tenant.place = Place::Waits;
        self.waiting.insert((tenant.used, id));
    }

    /// The next turn: of the tenant with work that has used the least of its share. A turn that was
    /// not ended ends without cost, and with work left. `None` if no tenant has work.
    #[allow(clippy::should_implement_trait)] // a turn has to be ended before the next one
    pub fn next(&mut self) -> Option<Turn> {
        if let Some(running) = self.running.take() {
            self.put_back(running);
        }
        let (used, id) = self.waiting.pop_first()?;
        let tenant = self.tenants.get_mut(&id)?;
        tenant.place = Place::Runs;
        self.line = self.line.max(used);
        let waited = tenant.left_at.is_some_and(|turns| turns != self.turns);
        self.running = Some(id);
        let likely = self.settings.slice.as_nanos() / tenant.frame_ns.max(1); // N2
        let likely = u32::try_from(likely).unwrap_or(u32::MAX);
        let frames = likely.clamp(1, self.settings.frames_max.max(1));
        Some(Turn { tenant: id, frames, waited })
    }

    /// Ends a turn in which so many frames were read, and which took so long. If there were fewer
    /// frames than it had, the tenant has no more work until [`Tenants::wake`].
    pub fn end(&mut self, turn: Turn, frames: u32, spent: Duration) {
        self.charge(turn.tenant, spent);
        let Some(tenant) = self.tenants.get_mut(&turn.tenant) else { return };
        tenant.total.turns += 1;
        tenant.total.frames += u64::from(frames);
        tenant.total.waited += u64::from(frames) * u64::from(turn.waited);
        if frames > 0 {
            self.turns += 1;
            // A turn that was too long must not come again: the cost rises at once, and falls
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
            tenant.place = Place::Idle;
        } else {
            self.put_back(turn.tenant);
        }
    }

    /// A tenant has used time outside of its turns. // N1
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
        tenant.place = Place::Waits;
        tenant.left_at = Some(self.turns);
        self.waiting.insert((tenant.used, id));
    }

    /// Whether no tenant has work.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_none()
    }

    /// What a tenant has had.
    pub fn used(&self, id: TenantId) -> Used {
        self.tenants.get(&id).map(|tenant| tenant.total).unwrap_or_default()
    }
}

/// Time in the measure of a weight, in parts that are fine enough for any weight.
fn scaled(spent: Duration, weight: u32) -> u128 {
    u128::from(spent.as_nanos()) * u128::from(WEIGHT_MAX) / u128::from(weight.max(1))
}

#[cfg(test)]
mod tests;
