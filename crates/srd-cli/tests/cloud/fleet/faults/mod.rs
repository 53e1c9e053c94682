//! One fault at a time in a cloud of three members of etcd, two controllers and three hosts, while
//! clients change objects and instances of two hosts exchange packets.
//!
//! | file | content |
//! |---|---|
//! | `site` | the machines, and the faults |
//! | `traffic` | packets between instances |
//! | `history` | clients of both controllers, and the check of their answers |
//!
//! A run has each kind of fault once. `SRD_FAULTS_SECONDS` makes it longer, and its bounds those of
//! a quiet machine; `SRD_FAULTS_SEED` selects the order of faults and their victims.

mod history;
mod site;
mod traffic;

use std::time::{Duration, Instant};

use super::*;
use history::History;
use site::{Bed, Fault};
use traffic::{Echoes, Pings};

/// Zone of all hosts.
const ZONE: &str = "us-east-1a";

/// Bounds of a run.
struct Bounds {
    /// Longest time from the end of a fault until all hosts apply the newest rules.
    convergence_max: Duration,
    /// Longest time without an answer to the packets between two hosts without a fault.
    silence_max: Duration,
    /// Time for which rounds of faults are begun.
    rounds: Duration,
}

impl Bounds {
    fn read(seconds: Option<u64>) -> Self {
        match seconds {
            Some(seconds) => Self {
                convergence_max: Duration::from_secs(2),
                silence_max: Duration::from_millis(500),
                rounds: Duration::from_secs(seconds),
            },
            // Both processors of the machine may be busy with other tests.
            None => Self {
                convergence_max: PATIENCE,
                silence_max: Duration::from_secs(30),
                rounds: Duration::ZERO,
            },
        }
    }
}

/// Pseudo-random numbers (xorshift64), for the same run from the same seed.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % count
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last + 1));
        }
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn no_fault_of_one_part_loses_a_change_stops_traffic_or_delays_hosts() {
    if !is_ready() {
        return;
    }
    if !Path::new("/run/test").is_dir() {
        println!("skipped: a name of two controllers needs an /etc/hosts of its own");
        return;
    }
    let seed = setting("SRD_FAULTS_SEED").unwrap_or(1);
    let bounds = Bounds::read(setting("SRD_FAULTS_SECONDS"));
    let mut dice = Dice::new(seed);
    let victim = 1 + dice.below(site::HOSTS);
    println!("seed {seed}: of the hosts, h{victim} is killed");
    let Some(mut bed) = Bed::start() else { return };
    let network = bed.fleet.network(ZONE);
    bed.fleet.rules("AuthorizeSecurityGroupIngress", &network[1]);
    let instances = bed.fleet.run(&network, site::HOSTS);
    bed.start_controller(1);
    let on = |machine: usize| instances.iter().find(|of| of.machine == machine).unwrap().clone();
    let instances: Vec<Placed> = (1..=site::HOSTS).map(on).collect();
    let live: Vec<&Placed> = instances.iter().filter(|of| of.machine != victim).collect();
    wait_until("the first ping", || pings(live[0], live[1]));
    let mut echoes = Echoes::start(&instances);
    let traffic = Pings::start(live[0], live[1], &bed.fleet.path("pings"));
    let history = History::start(bed.endpoints());

    let mut is_permitted = false;
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    loop {
        let mut faults = Fault::all(&mut dice, victim);
        dice.shuffle(&mut faults);
        for fault in faults {
            bed.begin(fault);
            let of_killed = (fault == Fault::KillHost(victim)).then(|| &instances[victim - 1]);
            if let Some(of) = of_killed {
                wait_until("the end of the instance", || !exists(&of.namespace()));
            }
            std::thread::sleep(Duration::from_millis(1000 + 500 * dice.below(5) as u64));
            let site = bed.spared(fault);
            bed.fleet.turn_to(site);
            is_permitted = !is_permitted;
            traffic::permit(&bed.fleet, &network[1], is_permitted);
            bed.end(fault);
            if let Some(of) = of_killed {
                wait_until("the instance", || is_mounted(&of.namespace()));
                echoes.restart(of);
            }
            let healed = Instant::now();
            while !echoes.all_are(&instances, is_permitted) {
                assert!(healed.elapsed() < PATIENCE, "{fault:?}: {}", bed.fleet.log());
                std::thread::sleep(Duration::from_millis(10));
            }
            let elapsed = healed.elapsed();
            println!(
                "{fault:?}: the hosts apply the change {elapsed:?} after the end of the fault"
            );
            slowest = slowest.max(elapsed);
        }
        if began.elapsed() >= bounds.rounds {
            break;
        }
    }
    let took = began.elapsed();
    let silence = traffic.end();
    println!("{took:?} of faults; slowest convergence {slowest:?}; {silence}");
    bed.settle();
    println!("{}", history.end());
    assert!(silence.longest <= bounds.silence_max, "{silence}");
    assert!(slowest <= bounds.convergence_max, "{slowest:?}");
    drop(echoes);
    bed.fleet.terminate(&instances);
    bed.fleet.end_hosts();
}
