//! Any operations in any order on a [`Pair`], and the properties that hold after each operation.
//!
//! A case is a list of operations, which shrinks to the fewest that fail. After each operation both
//! endpoints check all their invariants. In the end all faults end, every datagram must have
//! completed, and a new datagram must arrive. `SRD_OPERATIONS_CASES` sets the number of cases.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{Fault, Pair};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use srd_proto::{Config, Duration, Event, Protection, Status};

/// One operation of a test case.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Send {
        back: bool,
        count: u8,
        bytes: u16,
    },
    Advance {
        us: u32,
    },
    /// From now on the wire loses, duplicates and reorders packets.
    Disturb {
        loss_permille: u16,
        duplicate_permille: u16,
        jitter_us: u16,
    },
    /// Packets of this number of source ports vanish, in both directions.
    KillPaths {
        ports: u8,
    },
    Heal,
    /// A packet that left recently arrives again, from another address if `elsewhere`.
    Replay {
        back: bool,
        which: u8,
        elsewhere: bool,
    },
    RestartA,
    RestartB,
    /// Endpoint b moves to another address.
    Roam {
        to: u8,
    },
    /// Endpoint a removes peer b and adds it again.
    RemoveAndAdd,
    /// Endpoint a closes the queue pair from which it sends.
    CloseQueuePair,
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    prop_oneof![
        6 => (any::<bool>(), 1u8..40, 0u16..1300)
            .prop_map(|(back, count, bytes)| Send { back, count, bytes }),
        6 => prop_oneof![1u32..50, 50u32..3000, 3000u32..80_000].prop_map(|us| Advance { us }),
        2 => (prop_oneof![0u16..300, 900u16..=1000], 0u16..300, 0u16..60).prop_map(
            |(loss_permille, duplicate_permille, jitter_us)| {
                Disturb { loss_permille, duplicate_permille, jitter_us }
            }
        ),
        1 => (1u8..=16).prop_map(|ports| KillPaths { ports }),
        2 => Just(Heal),
        3 => (any::<bool>(), any::<u8>(), any::<bool>())
            .prop_map(|(back, which, elsewhere)| Replay { back, which, elsewhere }),
        1 => Just(RestartA),
        1 => Just(RestartB),
        1 => (20u8..24).prop_map(|to| Roam { to }),
        1 => Just(RemoveAndAdd),
        1 => Just(CloseQueuePair),
    ]
}

fn config(mode: u8) -> Config {
    Config {
        protection: match mode {
            0 => Protection::Plain,
            1 => Protection::JobKey([3; 32]),
            _ => Protection::Static([4; 32]),
        },
        packet_bytes_max: 1472,
        paths: 16,
        send_queue_datagrams_max: 64,
        window_packets_max: 128,
        rto_max: Duration::from_millis(10),
        peer_timeout: Duration::from_millis(50),
        // A plain packet does not show its age: after an end has released the context, it accepts
        // an old packet as new.
        idle_reclaim: if mode == 0 { Duration::MAX } else { Duration::from_millis(150) },
        key_packets_max: 200,
        ..Config::default()
    }
}

/// Datagrams that one end accepted, and their statuses.
#[derive(Default)]
struct Books {
    accepted: BTreeSet<u64>,
    ended: BTreeMap<u64, Status>,
}

impl Books {
    /// Records completions: each accepted datagram completes once, and as `Ok` only if it was
    /// delivered.
    fn take(&mut self, events: &[Event], delivered: impl Fn(u64) -> bool) {
        for event in events {
            let Event::Completed { user, status, .. } = event else { continue };
            assert!(self.accepted.contains(user), "datagram {user} was never handed in");
            let before = self.ended.insert(*user, *status);
            assert_eq!(before, None, "datagram {user} ends a second time, as {status:?}");
            assert!(*status != Status::Ok || delivered(*user), "{user} is Ok and never arrived");
        }
    }

    fn open(&self) -> usize {
        self.accepted.len() - self.ended.len()
    }
}

struct Run {
    pair: Pair,
    a: Books,
    b: Books,
    /// False after an event that permits datagrams to fail: a restart, another address, a removal,
    /// or a peer that is reported as down. While this field is true, every datagram must be
    /// delivered once the wire is good.
    untroubled: bool,
}

impl Run {
    fn new(mode: u8, seed: u64) -> Self {
        let mut pair = Pair::new(config(mode), seed);
        if mode == 0 {
            pair.again_after_restart = true;
            // A plain end may accept a packet as new if the network holds it for longer than a peer
            // may be silent (H9, H13).
            pair.replays_within = config(mode).peer_timeout;
        }
        Self { pair, a: Books::default(), b: Books::default(), untroubled: true }
    }

    fn step(&mut self, operation: Operation) {
        let pair = &mut self.pair;
        // Only its source address identifies the sender of a plain packet: with another address it
        // would be a packet of another peer.
        let protected = pair.a.config().protection.is_on();
        match operation {
            Operation::Send { back, count, bytes } => {
                let books = if back { &mut self.b } else { &mut self.a };
                let offered = (0..count).filter_map(|_| pair.offer(back, bytes.into()));
                books.accepted.extend(offered);
                pair.run_for(Duration::ZERO);
            }
            Operation::Advance { us } => pair.run_for(Duration::from_micros(us.into())),
            Operation::Disturb { loss_permille, duplicate_permille, jitter_us } => {
                pair.fault.loss_permille = loss_permille.into();
                pair.fault.duplicate_permille = duplicate_permille.into();
                pair.fault.jitter = Duration::from_micros(jitter_us.into());
            }
            Operation::KillPaths { ports } => pair.kill_paths_below(ports.into()),
            Operation::Heal => pair.fault = Fault::default(),
            Operation::Replay { back, which, elsewhere } => {
                pair.replay(back, which, elsewhere && protected);
            }
            Operation::RestartA => {
                self.take_events();
                self.pair.restart_a();
                self.a = Books::default();
            }
            Operation::RestartB => {
                self.take_events();
                self.pair.restart_b();
                self.b = Books::default();
            }
            Operation::Roam { to } => pair.roam_b(if protected { to } else { 2 }),
            Operation::RemoveAndAdd => pair.remove_and_add_b(),
            Operation::CloseQueuePair => pair.close_sender(),
        }
        self.untroubled &= !matches!(
            operation,
            Operation::RestartA
                | Operation::RestartB
                | Operation::Roam { .. }
                | Operation::RemoveAndAdd
                | Operation::CloseQueuePair
        );
        self.check();
    }

    fn check(&mut self) {
        self.take_events();
        #[cfg(debug_assertions)]
        for endpoint in [&self.pair.a, &self.pair.b] {
            endpoint.check_invariants();
        }
    }

    fn take_events(&mut self) {
        let pair = &mut self.pair;
        pair.hear_events();
        let down = |e: &Event| matches!(e, Event::PeerDown { .. });
        self.untroubled &= !pair.events.iter().chain(&pair.events_b).any(down);
        let (events, back) = (std::mem::take(&mut pair.events), std::mem::take(&mut pair.events_b));
        self.a.take(&events, |user| pair.has_delivered(user));
        self.b.take(&back, |user| pair.has_delivered(user));
    }

    /// Ends all faults: every accepted datagram must end, and a new datagram must arrive.
    fn finish(&mut self) {
        self.pair.fault = Fault::default();
        self.pair.roam_b(2);
        for _ in 0..100 {
            self.pair.run_for(Duration::from_millis(10));
            self.check();
        }
        assert_eq!((self.a.open(), self.b.open()), (0, 0), "datagrams that never end");
        if self.untroubled {
            let ok = |books: &Books| books.ended.values().all(|status| *status == Status::Ok);
            assert!(ok(&self.a) && ok(&self.b), "{:?} {:?}", self.a.ended, self.b.ended);
        }
        let arrives = (0..5).any(|_| {
            let user = self.pair.offer(false, 100);
            let user = user.expect("the queue has room: nothing is under way");
            self.a.accepted.insert(user);
            self.pair.run_for(Duration::from_millis(200));
            self.check();
            self.a.ended.get(&user) == Some(&Status::Ok)
        });
        assert!(
            arrives,
            "the peers do not find each other again: {:?}; {:?}; {:?}",
            self.pair.a.address_of(self.pair.b_at_a),
            self.pair.drops(),
            self.a.ended.iter().rev().take(6).collect::<Vec<_>>(),
        );
    }
}

fn cases() -> u32 {
    let asked = std::env::var("SRD_OPERATIONS_CASES").ok();
    asked.map_or(64, |n| n.parse().expect("SRD_OPERATIONS_CASES is a number"))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_datagrams_arrive_once_and_end(
        mode in 0u8..3,
        seed in 0u64..1000,
        operations in proptest::collection::vec(operation(), 1..60),
    ) {
        run(mode, seed, &operations);
    }
}

/// Runs one case: the operations, and the checks at its end.
fn run(mode: u8, seed: u64, operations: &[Operation]) {
    let mut run = Run::new(mode, seed);
    for operation in operations {
        run.step(*operation);
    }
    run.finish();
}

#[test]
fn regression_a_peer_that_spoke_from_elsewhere_is_found_where_it_was_named() {
    use Operation::*;
    let said = Send { back: true, count: 1, bytes: 0 };
    for mode in 0..3 {
        for us in [6, 12, 18, 24, 1000] {
            run(mode, 0, &[Roam { to: 20 }, said, Advance { us }]);
            run(mode, 0, &[Roam { to: 20 }, said, Advance { us }, RestartB]);
            run(mode, 0, &[Roam { to: 20 }, said, Advance { us }, RemoveAndAdd]);
        }
    }
}

#[test]
fn regression_a_plain_packet_of_a_run_long_gone_is_not_held_by_the_network() {
    use Operation::*;
    let send = |back, count| Send { back, count, bytes: 0 };
    let began = [send(false, 4), RemoveAndAdd, send(false, 1), RestartA, Advance { us: 46_202 }];
    let goes_on = [send(true, 1), Advance { us: 3804 }];
    let replayed = Replay { back: false, which: 64, elsewhere: false };
    run(0, 0, &[&began[..], &goes_on, &[replayed]].concat());
}

/// Regression: one run in 256 gave its context the number of the earlier run's context, and
/// accepted packets for that context as its own: acknowledgements of datagrams that had never
/// arrived. A peer that was removed and added again did the same.
#[test]
fn regression_what_is_sent_to_a_former_context_does_not_count_in_the_next() {
    use Operation::*;
    let send = |back| Send { back, count: 1, bytes: 0 };
    let found = [RestartB, RemoveAndAdd, send(false), RestartA, Advance { us: 12 }, send(false)];
    for seed in 0..1000 {
        run(0, seed, &found);
        for (back, again) in
            [(false, RestartA), (false, RemoveAndAdd), (true, RestartB), (false, RestartB)]
        {
            // The answer to packets of the earlier context arrives after 12 us.
            run(0, seed, &[send(back), again, Advance { us: 12 }, send(back)]);
            let lost = [KillPaths { ports: 16 }, send(back), Advance { us: 10 }, Heal];
            run(0, seed, &[&[send(back), again, Advance { us: 6 }][..], &lost].concat());
        }
    }
}

/// Regression: rule D14 of the specification (a window full of losses) had shown that datagrams
/// were certainly not delivered. If their queue pair closed before they were sent again, and the
/// peer then restarted, they moved to the new context as if they had never been sent.
#[test]
fn regression_what_has_ended_and_lost_its_identity_does_not_go_to_the_next_run() {
    use Operation::*;
    let send = |count| Send { back: false, count, bytes: 1108 };
    let loses = |loss_permille| Disturb { loss_permille, duplicate_permille: 0, jitter_us: 0 };
    let exhausts = [send(1), Advance { us: 100 }, loses(900), send(30), Advance { us: 5000 }];
    for mode in 0..3 {
        for seed in 0..20 {
            let ends = [loses(0), Advance { us: 100 }, CloseQueuePair, RestartB, send(1)];
            run(mode, seed, &[&exhausts[..], &ends].concat());
        }
    }
}
