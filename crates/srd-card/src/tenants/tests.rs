use super::*;
use srd_proto::rng::Rng;
use std::vec::Vec;

/// A tenant of the simulation, with the packets that wait in its device and the time of its next
/// packet.
struct Load {
    id: TenantId,
    weight: u32,
    /// Nanoseconds between the arrivals of two packets; zero if packets are always waiting.
    gap_ns: u64,
    /// Smallest and largest cost of a packet, in nanoseconds.
    cost_ns: (u64, u64),
    /// Times, in nanoseconds, at which the tenant's packets begin and cease to arrive.
    active_ns: (u64, u64),
    next_ns: u64,
    arrived: Vec<u64>,
    delay_max_ns: u64,
}

impl Load {
    fn flood(id: u32, cost_ns: (u64, u64)) -> Self {
        Self {
            id: TenantId(id),
            weight: 1,
            gap_ns: 0,
            cost_ns,
            active_ns: (0, u64::MAX),
            next_ns: 0,
            arrived: Vec::new(),
            delay_max_ns: 0,
        }
    }

    fn quiet(id: u32, gap_ns: u64, cost_ns: u64) -> Self {
        Self { gap_ns, cost_ns: (cost_ns, cost_ns), ..Self::flood(id, (0, 0)) }
    }

    /// Adds the packets that have arrived by `now_ns`.
    fn advance(&mut self, now_ns: u64, rng: &mut Rng) {
        let (from, to) = self.active_ns;
        if self.gap_ns == 0 {
            let flows = (from..to).contains(&now_ns);
            self.arrived.resize(if flows { 64 } else { 0 }, now_ns);
            return;
        }
        self.next_ns = self.next_ns.max(from);
        while self.next_ns <= now_ns && self.next_ns < to {
            self.arrived.push(self.next_ns);
            let gap = u32::try_from(self.gap_ns).unwrap();
            self.next_ns += u64::from(gap / 2 + rng.below(gap));
        }
    }
}

/// A worker in simulated time.
struct World {
    tenants: Tenants,
    loads: Vec<Load>,
    now_ns: u64,
    turn_max_ns: u64,
    busy_ns: u64,
    rng: Rng,
}

impl World {
    fn new(seed: u64, loads: Vec<Load>) -> Self {
        let mut tenants = Tenants::new(Settings::default());
        loads.iter().for_each(|load| assert!(tenants.add(load.id, load.weight)));
        Self { tenants, loads, now_ns: 0, turn_max_ns: 0, busy_ns: 0, rng: Rng::new(seed) }
    }

    fn run(&mut self, until_ns: u64) {
        while self.now_ns < until_ns {
            for load in &mut self.loads {
                load.advance(self.now_ns, &mut self.rng);
                if !load.arrived.is_empty() {
                    self.tenants.wake(load.id);
                }
            }
            let Some(turn) = self.tenants.next() else {
                assert!(self.loads.iter().all(|load| load.arrived.is_empty()), "work waits");
                self.now_ns += 100;
                continue;
            };
            let load = self.loads.iter_mut().find(|load| load.id == turn.tenant).unwrap();
            let frames = load.arrived.len().min(turn.frames as usize);
            for came in load.arrived.drain(..frames) {
                load.delay_max_ns = load.delay_max_ns.max(self.now_ns - came);
            }
            let (least, most) = load.cost_ns;
            let span = u32::try_from(most - least + 1).unwrap();
            let each = least + u64::from(self.rng.below(span));
            let spent = each * frames as u64;
            self.turn_max_ns = self.turn_max_ns.max(spent);
            self.busy_ns += spent;
            self.now_ns += spent;
            let frames = u32::try_from(frames).unwrap();
            self.tenants.end(turn, frames, Duration::from_nanos(spent));
        }
    }

    fn spent_ns(&self, id: u32) -> u64 {
        self.tenants.used(TenantId(id)).spent.as_nanos()
    }
}

const MS: u64 = 1_000_000;

/// N1, N3: with any number of floods at any cost of packets, a tenant that uses less than half of
/// its share waits only for the current turn.
#[test]
fn a_quiet_tenant_waits_for_one_turn_however_many_flood() {
    for seed in 0..40 {
        let floods = 1 + u32::try_from(seed).unwrap() % 20;
        let mut rng = Rng::new(seed);
        let mut loads: Vec<Load> = (1..=floods)
            .map(|id| Load::flood(id, (100, 200 + u64::from(rng.below(3000)))))
            .collect();
        let gap_ns = 1000 * 2 * u64::from(floods + 1);
        loads.push(Load::quiet(0, gap_ns, 1000));
        let mut world = World::new(seed, loads);
        // At first all tenants are new, and have their first turns before the quiet tenant's
        // second one.
        world.run(10 * MS);
        world.loads.last_mut().unwrap().delay_max_ns = 0;
        world.run(60 * MS);
        let quiet = world.loads.last().unwrap();
        assert!(quiet.delay_max_ns <= world.turn_max_ns, "{} {seed}", quiet.delay_max_ns);
        // The first turns, with packets of unknown cost, may be longer.
        assert!(world.turn_max_ns <= 32 * 3200, "{}", world.turn_max_ns);
        let used = world.tenants.used(TenantId(0));
        assert!(used.frames >= 60 * MS / gap_ns * 9 / 10, "{used:?}");
        assert_eq!(used.waited, 0, "nothing of it was over its share");
        let waited: u64 = (1..=floods).map(|id| world.tenants.used(TenantId(id)).waited).sum();
        assert!(waited > 0);
    }
}

/// N1: time is divided by weight, not by packets.
#[test]
fn those_that_flood_share_time_by_weight_whatever_their_packets_cost() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let loads: Vec<Load> = (0..2 + rng.below(10))
            .map(|id| {
                let weight = 1 + rng.below(4);
                let least = 50 + u64::from(rng.below(2000));
                Load { weight, ..Load::flood(id, (least, least + u64::from(rng.below(500)))) }
            })
            .collect();
        let weights: u64 = loads.iter().map(|load| u64::from(load.weight)).sum();
        let mut world = World::new(seed, loads);
        world.run(100 * MS);
        for load in &world.loads {
            let share = world.now_ns * u64::from(load.weight) / weights;
            let has = world.spent_ns(load.id.0);
            // Each turn may take a tenant of any weight beyond its share.
            let bound = 5 * world.turn_max_ns;
            assert!(has.abs_diff(share) <= bound, "seed {seed}: {has} of {share}");
        }
    }
}

/// Time that other tenants do not use goes to a flooding tenant. A tenant that becomes active again
/// has its share of each millisecond from then on.
#[test]
fn unused_time_is_used_and_given_back_within_a_millisecond() {
    for weight in [1, 3] {
        let back_ns = 20 * MS;
        let owner = Load { weight, active_ns: (back_ns, u64::MAX), ..Load::flood(0, (300, 300)) };
        let mut world = World::new(1, std::vec![owner, Load::flood(1, (80, 2000))]);
        world.run(back_ns);
        assert!(world.spent_ns(1) * 100 >= back_ns * 99, "all of it");
        assert_eq!(world.spent_ns(0), 0);
        for n in 1..20 {
            let before = (world.now_ns, world.spent_ns(0));
            world.run(back_ns + n * MS);
            let share = (world.now_ns - before.0) * u64::from(weight) / u64::from(weight + 1);
            let has = world.spent_ns(0) - before.1;
            assert!(has + 2 * world.turn_max_ns >= share, "{has} of {share}, millisecond {n}");
        }
    }
}

/// The worker is idle only when no work waits, for any sequence of active tenants.
#[test]
fn the_worker_never_rests_while_work_waits() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let loads = (0..12).map(|id| {
            let from = u64::from(rng.below(10)) * MS;
            let active_ns = (from, from + u64::from(1 + rng.below(10)) * MS);
            let gap_ns = u64::from(rng.below(4)) * 5000;
            Load { gap_ns, active_ns, ..Load::flood(id, (100, 900)) }
        });
        // `run` checks this.
        let mut world = World::new(seed, loads.collect());
        world.run(22 * MS);
        assert!(world.loads.iter().all(|load| load.arrived.is_empty()) && world.busy_ns > MS);
    }
}

/// N3: a pause of an hour does not give credit for an hour.
#[test]
fn a_long_pause_gives_credit_for_a_short_burst_only() {
    let back_ns = 3_600_000 * MS;
    let mut world = World::new(
        1,
        std::vec![
            Load { active_ns: (back_ns, u64::MAX), ..Load::flood(0, (300, 300)) },
            Load::flood(1, (300, 300)),
        ],
    );
    world.now_ns = back_ns - 10 * MS;
    world.run(back_ns);
    let before = world.spent_ns(1);
    world.run(back_ns + 2 * MS);
    let others = world.spent_ns(1) - before;
    let credit = Settings::default().credit.as_nanos();
    let share = MS - credit / 2;
    assert!(others + 2 * world.turn_max_ns >= share && others <= share + 2 * world.turn_max_ns);
}

/// N4: a single tenant cannot exceed its share, and a burst within the credit does not exceed it.
#[test]
fn only_frames_that_waited_for_others_are_over_the_share() {
    let mut alone = World::new(1, std::vec![Load::flood(0, (300, 300))]);
    alone.run(5 * MS);
    // The tenant of a device without frames has a turn without frames.
    for _ in 0..10 {
        alone.tenants.add(TenantId(1), 1);
        alone.tenants.wake(TenantId(1));
        let turn = alone.tenants.next().unwrap();
        let frames = if turn.tenant == TenantId(1) { 0 } else { turn.frames };
        alone.tenants.end(turn, frames, Duration::from_nanos(300));
    }
    assert_eq!(alone.tenants.used(TenantId(0)).waited, 0);

    let mut tenants = Tenants::new(Settings::default());
    let mut burst = 100_u32;
    [0, 1].into_iter().for_each(|id| assert!(tenants.add(TenantId(id), 1)));
    tenants.wake(TenantId(1));
    for _ in 0..100 {
        let turn = tenants.next().unwrap();
        tenants.end(turn, turn.frames, Duration::from_nanos(600 * u64::from(turn.frames)));
    }
    tenants.wake(TenantId(0));
    while burst > 0 {
        let turn = tenants.next().unwrap();
        assert_eq!((turn.tenant, turn.waited), (TenantId(0), false));
        let frames = burst.min(turn.frames);
        burst -= frames;
        tenants.end(turn, frames, Duration::from_nanos(600 * u64::from(frames)));
    }
}

/// N2: a tenant whose packets become expensive has turns of a few frames at once; when they are
/// cheap again, its turns grow.
#[test]
fn a_turn_has_as_many_frames_as_its_slice_has_time_for() {
    let mut tenants = Tenants::new(Settings::default());
    assert!(tenants.add(TenantId(0), 1));
    tenants.wake(TenantId(0));
    let mut turn = |ns: u64| {
        let turn = tenants.next().unwrap();
        tenants.end(turn, turn.frames, Duration::from_nanos(ns * u64::from(turn.frames)));
        turn.frames
    };
    assert_eq!((turn(100), turn(100)), (20, 22));
    assert!((0..40).map(|_| turn(100)).last() == Some(32), "as many as there may be");
    assert_eq!((turn(9000), turn(9000)), (32, 2));
    assert_eq!((turn(1 << 40), turn(100)), (2, 1), "one is always served");
    assert!((0..200).map(|_| turn(100)).last() == Some(32));
}

#[test]
fn what_is_used_outside_of_turns_counts() {
    let mut tenants = Tenants::new(Settings::default());
    [0, 1].into_iter().for_each(|id| assert!(tenants.add(TenantId(id), 1)));
    [0, 1].into_iter().for_each(|id| tenants.wake(TenantId(id)));
    tenants.charge(TenantId(0), Duration::from_micros(500));
    let mut of = [0; 2];
    for _ in 0..50 {
        let turn = tenants.next().unwrap();
        of[turn.tenant.0 as usize] += 1;
        tenants.end(turn, turn.frames, Duration::from_micros(20));
    }
    assert_eq!(of, [13, 37], "25 turns of 20 us are before the first of the other");
}

#[test]
fn no_more_tenants_than_there_are_places_and_none_that_is_gone_is_served() {
    let mut tenants = Tenants::new(Settings::default());
    let most = u32::try_from(TENANTS_MAX).unwrap();
    for id in 0..most {
        assert!(tenants.add(TenantId(id), 1));
        tenants.wake(TenantId(id));
    }
    assert!(!tenants.add(TenantId(most), 1) && tenants.add(TenantId(0), 7), "not one more");
    tenants.wake(TenantId(most));
    let turn = tenants.next().unwrap();
    tenants.remove(turn.tenant);
    tenants.end(turn, turn.frames, Duration::from_micros(20));
    assert!(tenants.add(TenantId(most), 1));
    (1..most).for_each(|id| tenants.remove(TenantId(id)));
    assert_eq!(tenants.next(), None, "the new one has no work");
    assert!(tenants.is_idle());
    tenants.wake(TenantId(most));
    // A turn without a call of `end` ends with the next one.
    let first = tenants.next().unwrap();
    assert_eq!(tenants.next(), Some(Turn { waited: false, ..first }));
}
