use alloc::collections::BTreeMap;
use std::vec::Vec;

use super::*;
use crate::config::Config;
use crate::ids::Epoch;

const MS: Duration = Duration::from_millis(1);
const LINK_BPS: u64 = 100_000_000_000;

/// State about each sender, and the peers to which a credit limit was announced.
#[derive(Default)]
struct Table {
    shares: BTreeMap<PeerId, Share>,
    told: Vec<PeerId>,
}

impl Shares for Table {
    fn share(&mut self, peer: PeerId) -> Option<&mut Share> {
        self.shares.get_mut(&peer)
    }

    fn announce(&mut self, peer: PeerId) {
        self.told.push(peer);
    }
}

struct Rig {
    share: ReceiverShare,
    table: Table,
    now: Instant,
}

impl Rig {
    fn new(peers_max: u32) -> Self {
        Self::over(peers_max, LINK_BPS)
    }

    fn over(peers_max: u32, link_rate_bps: u64) -> Self {
        let config = Config { link_rate_bps, peers_max, ..Config::default() };
        let node = Arc::new(Node::new(config, Epoch(1), 1).unwrap());
        Self { share: ReceiverShare::new(&node), table: Table::default(), now: Instant::ZERO }
    }

    /// Simulates the arrival of `bytes` bytes from sender `index`, which has `left` more bytes to
    /// send and reports the round trip `rtt`.
    fn arrive(&mut self, index: u32, bytes: u64, left: u64, rtt: Option<Duration>) {
        let id = PeerId::new(index, 1);
        let share = self.table.shares.entry(id).or_default();
        share.received += bytes;
        share.queued = share.received + left;
        let code = rtt.map_or(RTT_UNKNOWN, |rtt| wire::encode_rtt(rtt.as_nanos()));
        self.share.on_arrival(self.now, id, code, &mut self.table);
    }

    fn end(&mut self, index: u32) {
        if let Some(mut share) = self.table.shares.remove(&PeerId::new(index, 1)) {
            self.share.forget(&mut share);
        }
    }

    /// Bytes that a link of `LINK_BPS` carries in `time`.
    fn held_in(time: Duration) -> u64 {
        LINK_BPS / 8 * time.as_nanos() / 1_000_000_000
    }
}

const LOTS: u64 = 1 << 40;
const RTT: Duration = Duration::from_micros(30);

#[test]
fn regression_the_round_trip_of_a_sender_that_has_gone_sizes_nothing() {
    let mut rig = Rig::new(100);
    rig.arrive(0, 8900, LOTS, Some(RTT));
    rig.arrive(1, 8900, LOTS, Some(Duration::from_secs(515)));
    rig.end(1);
    rig.arrive(2, 8900, LOTS, Some(RTT));
    rig.arrive(0, 8900, LOTS, Some(RTT));
    let most = Rig::held_in(RTT.times(2));
    assert!(rig.share.budget_bytes() <= most, "{} of {most}", rig.share.budget_bytes());
}

#[test]
fn regression_a_late_round_trip_is_forgotten_when_a_sender_has_measured_better() {
    let mut rig = Rig::new(100);
    rig.arrive(0, 8900, LOTS, Some(Duration::from_secs(1)));
    rig.arrive(1, 8900, LOTS, Some(RTT));
    rig.arrive(0, 8900, LOTS, Some(RTT));
    let most = Rig::held_in(RTT.times(2));
    assert!(rig.share.budget_bytes() <= most, "{} of {most}", rig.share.budget_bytes());
}

#[test]
fn regression_grants_are_listed_once_for_each_sender() {
    let mut rig = Rig::new(8);
    for n in 0..20_000_u32 {
        rig.now += Duration::from_nanos(700);
        rig.arrive(n % 4, 8900, LOTS, Some(Duration::from_secs(515)));
    }
    assert!(rig.share.granted.len() <= 4, "{} grants are listed", rig.share.granted.len());
}

#[test]
fn a_round_trip_that_grew_counts_after_two_generations() {
    let mut rig = Rig::new(100);
    let longer = RTT.times(10);
    rig.arrive(0, 8900, LOTS, Some(RTT));
    rig.arrive(1, 8900, LOTS, Some(RTT));
    let short = rig.share.budget_bytes();
    for _ in 0..11 {
        rig.now += MS.times(1000);
        rig.arrive(0, 8900, LOTS, Some(longer));
        rig.arrive(1, 8900, LOTS, Some(longer));
    }
    assert!(rig.share.budget_bytes() > short.saturating_mul(8));
}

#[test]
fn before_anything_is_measured_the_configured_round_trip_counts() {
    let mut rig = Rig::new(100);
    rig.arrive(0, 8900, LOTS, None);
    rig.arrive(1, 8900, LOTS, None);
    let expected = Rig::held_in(Config::default().rtt_initial);
    assert_eq!(rig.share.bdp_bytes(), expected);
}

#[test]
fn no_round_trip_counts_as_more_than_a_second() {
    let mut rig = Rig::new(100);
    rig.arrive(0, 8900, LOTS, Some(Duration::from_secs(515)));
    rig.arrive(1, 8900, LOTS, Some(RTT));
    assert!(rig.share.bdp_bytes() <= Rig::held_in(Duration::from_secs(1)));
}

#[test]
fn a_sender_that_is_silent_on_its_grant_is_set_aside_and_one_that_waits_is_not() {
    let mut rig = Rig::new(100);
    for index in 0..20 {
        rig.arrive(index, 8900, LOTS, Some(RTT));
    }
    let granted = rig.share.granted.iter().map(|(id, _)| id.index()).collect::<Vec<_>>();
    assert!(!granted.is_empty() && granted.len() < 19, "{granted:?}");
    // Sender 19, without a grant, sends a packet in each round trip, and uses each grant that it
    // gets. The senders with a grant send nothing.
    for _ in 0..200 {
        rig.now += RTT;
        let share = rig.table.shares[&PeerId::new(19, 1)];
        let may = share.credit_limit.saturating_sub(share.received) >= 8900;
        rig.arrive(19, if may { 8900 } else { 0 }, LOTS, Some(RTT));
    }
    let active = |rig: &Rig, index| rig.table.shares[&PeerId::new(index, 1)].active;
    assert!(granted.iter().all(|index| *index == 19 || !active(&rig, *index)));
    assert!(active(&rig, 19));
    let sum: u64 = rig.table.shares.values().map(|share| share.outstanding).sum();
    assert_eq!(rig.share.outstanding, sum);
}

#[test]
fn the_lists_stay_within_their_bound_however_many_contexts_come_and_go() {
    let mut rig = Rig::new(4);
    let bound = rig.share.entries_max;
    for n in 0..10_000_u32 {
        rig.now += Duration::from_nanos(100);
        rig.end(n.wrapping_sub(3));
        rig.arrive(n, 8900, LOTS, Some(Duration::from_secs(1)));
        assert!(rig.share.granted.len() <= bound && rig.share.ring.len() <= bound);
    }
    assert!(rig.share.granted.len() > 4, "entries of ended contexts were there to be dropped");
}

#[test]
fn a_context_that_begins_anew_does_not_multiply_in_the_ring() {
    let mut rig = Rig::new(4);
    for index in 0..3 {
        rig.arrive(index, 8900, LOTS, Some(RTT));
    }
    for _ in 0..1000 {
        rig.end(2);
        rig.arrive(2, 8900, LOTS, Some(RTT));
    }
    assert!(rig.share.ring.len() <= rig.share.entries_max, "{}", rig.share.ring.len());
}

/// Number of simulated round trips; together they take 0.3 s.
const ROUNDS: u64 = 10_000;

/// Share of the link, in percent, of a sender that uses its grants. Beside it `misers` other
/// senders send packets without data in each round trip and use no grant.
fn percent_beside_misers(misers: u32, link_bps: u64) -> u64 {
    let mut rig = Rig::over(100, link_bps);
    let honest = PeerId::new(0, 1);
    for index in 0..=misers {
        rig.arrive(index, 8900, LOTS, Some(RTT));
    }
    let before = rig.table.shares[&honest].received;
    for _ in 0..ROUNDS {
        rig.now += RTT;
        for index in 1..=misers {
            rig.arrive(index, 0, LOTS, Some(RTT));
        }
        let may = if rig.share.binds() { rig.table.shares[&honest].credit_limit } else { u64::MAX };
        let packets = may.saturating_sub(rig.table.shares[&honest].received) / 8900;
        let most = rig.share.bdp_bytes() / 8900;
        for _ in 0..packets.min(most) {
            rig.arrive(0, 8900, LOTS, Some(RTT));
        }
        // A packet without data, as of a sender that waits for a credit limit to rise.
        rig.arrive(0, 0, LOTS, Some(RTT));
    }
    let got = rig.table.shares[&honest].received - before;
    got * 100 / (ROUNDS * rig.share.bdp_bytes())
}

#[test]
fn regression_senders_that_are_heard_and_use_no_grant_do_not_starve_one_that_does() {
    for (misers, link_bps) in [
        (1, LINK_BPS),
        (4, LINK_BPS),
        (20, LINK_BPS),
        (99, LINK_BPS),
        (1, 1_000_000_000),
        (2, 1_000_000_000),
        (50, 1_000_000_000),
    ] {
        let percent = percent_beside_misers(misers, link_bps);
        assert!(percent > 30, "{percent} % beside {misers} at {link_bps}");
    }
}

#[test]
fn regression_a_sender_whose_datagrams_are_larger_than_a_grant_gets_enough_for_one() {
    let mut rig = Rig::over(100, 1_000_000_000);
    let large = 45_000;
    for index in 0..4 {
        rig.arrive(index, 8900, LOTS, Some(RTT));
    }
    for _ in 0..ROUNDS {
        rig.now += RTT;
        for (index, bytes) in [(0, large), (1, 8900), (2, 8900), (3, 8900)] {
            let share = rig.table.shares[&PeerId::new(index, 1)];
            let may = share.credit_limit.saturating_sub(share.received) >= bytes;
            rig.arrive(index, if may { bytes } else { 0 }, LOTS, Some(RTT));
        }
    }
    let datagrams = (rig.table.shares[&PeerId::new(0, 1)].received - 8900) / large;
    assert!(datagrams > 10, "{datagrams}");
}
