//! Interactive mode: small datagrams that answer one another are acknowledged together (A4 of the
//! specification). Other datagrams, and lost ones, do not wait longer because of it.

use crate::support::{Fault, Pair};
use srd_proto::{Config, Duration};

const SOON: Duration = Duration::from_micros(10);
const LATER: Duration = Duration::from_micros(1000);
/// Round-trip time on the wire of the pair, with a margin.
const ROUND: Duration = Duration::from_micros(13);

fn config() -> Config {
    Config {
        ack_delay: SOON,
        ack_delay_interactive: LATER,
        ack_packets: 64,
        rto_min: Duration::from_micros(1000),
        ..Config::default()
    }
}

/// Sends `n` datagrams in each direction, in turns.
fn talk(pair: &mut Pair, n: u64, bytes: usize) {
    for _ in 0..n {
        pair.send_many(1, bytes);
        pair.run_for(ROUND.over(2));
        pair.send_back(1, bytes);
        pair.run_for(ROUND.over(2));
    }
}

#[test]
fn packets_of_interactive_mode_are_acknowledged_together() {
    let mut pair = Pair::new(config(), 1);
    talk(&mut pair, 320, 64);
    assert_eq!((pair.delivered(), pair.delivered_back()), (320, 320));
    // 4 ms of traffic: one packet in 32 requests an Ack at once, and in each millisecond one more
    // is due.
    let acks = pair.a.stats().ack_pkts;
    assert!((10..=20).contains(&acks), "{acks} acknowledgements");
    assert_eq!(pair.a.stats().retrans_pkts + pair.b.stats().retrans_pkts, 0);
    assert_eq!(pair.a.stats().probe_pkts, 0, "nobody grew impatient");
    pair.run_for(LATER.times(2));
    pair.assert_all_completed(320);
}

#[test]
fn a_word_carries_the_acknowledgement_of_the_one_before() {
    let patient = Config { ack_delay_interactive: Duration::from_micros(900), ..config() };
    let mut pair = Pair::new(patient, 1);
    talk(&mut pair, 20, 64);
    // The first datagram of each end requests an Ack, which is a packet of its own.
    let acks = (pair.a.stats().ack_pkts, pair.b.stats().ack_pkts);
    assert!(acks.0 <= 1 && acks.1 <= 1, "{acks:?} acknowledgements");
    assert_eq!(pair.completions().len(), 20, "each answer says that its question arrived");
}

#[test]
fn acknowledgements_in_lost_words_are_not_missed() {
    for seed in 0..20 {
        let mut pair = Pair::new(config(), seed);
        pair.fault = Fault { loss_permille: 200, ..Fault::default() };
        talk(&mut pair, 200, 64);
        pair.fault = Fault::default();
        pair.run_for(Duration::from_micros(200_000));
        assert_eq!((pair.delivered(), pair.delivered_back()), (200, 200), "seed {seed}");
        pair.assert_all_completed(200);
    }
}

#[test]
fn large_answers_are_acknowledged_at_once() {
    let mut pair = Pair::new(config(), 1);
    talk(&mut pair, 50, 4000);
    pair.run_for(ROUND);
    pair.assert_all_completed(50);
    assert!(pair.b.stats().ack_pkts >= 50, "{} acknowledgements", pair.b.stats().ack_pkts);
}

#[test]
fn long_answers_carry_acknowledgements_if_the_endpoint_is_for_messages() {
    for bytes in [4000, 8000] {
        let messages = Config { interactive_bytes_max: 65_000, ..config() };
        let mut pair = Pair::new(messages, 1);
        talk(&mut pair, 200, bytes);
        pair.run_for(ROUND.times(2) + LATER);
        pair.assert_all_completed(200);
        let acks = [pair.a.stats().ack_pkts, pair.b.stats().ack_pkts];
        assert!(acks.iter().all(|acks| *acks <= 20), "{bytes} bytes: {acks:?}");
    }
}

#[test]
fn long_answers_complete_over_lossy_wires_and_small_path_mtus() {
    for seed in 0..20 {
        let messages = Config { interactive_bytes_max: 65_000, ..config() };
        let mut pair = Pair::new(messages, seed);
        pair.fault = Fault { loss_permille: 200, ..Fault::default() };
        talk(&mut pair, 200, 4000);
        pair.fault = Fault::default();
        pair.run_for(Duration::from_micros(200_000));
        assert_eq!((pair.delivered(), pair.delivered_back()), (200, 200), "seed {seed}");
        pair.assert_all_completed(200);
    }
}

#[test]
fn small_datagrams_that_nobody_answers_complete_in_a_round_trip() {
    let mut pair = Pair::new(config(), 1);
    for n in 1..=50 {
        pair.send_many(1, 64);
        pair.run_for(ROUND);
        assert_eq!(pair.completions().len(), n);
    }
}

/// Exchanges datagrams in alternating directions, each sent as soon as the previous datagram has
/// arrived. At half time the first `dead` of all paths die. At most `late` exchanges may take
/// longer than three round trips, and none longer than `most_us` microseconds.
fn paths_die(dead: u16, late: usize, most_us: u64) {
    for seed in 0..20 {
        let mut pair = Pair::new(Config::default(), seed);
        let mut took = Vec::new();
        for word in 1..=1000 {
            if word == 500 {
                pair.fault = Fault { dead_ports_below: 49152 + dead, ..Fault::default() };
            }
            let begun = pair.now;
            pair.send_many(1, 64);
            while pair.delivered() < word {
                pair.run_for(Duration::from_micros(1));
            }
            pair.send_back(1, 64);
            while pair.delivered_back() < word {
                pair.run_for(Duration::from_micros(1));
            }
            took.push(pair.now.since(begun));
        }
        let waited = took.iter().filter(|took| **took > ROUND.times(3)).count();
        assert!(waited <= late, "seed {seed}: {waited} words waited");
        let most = Duration::from_micros(most_us);
        assert!(took.iter().all(|took| *took <= most), "seed {seed}: {:?}", took.iter().max());
    }
}

#[test]
fn a_quarter_of_all_paths_dies_and_few_words_wait() {
    paths_die(32, 2, 200);
}

#[test]
fn seven_eighths_of_all_paths_die_and_the_rest_are_found() {
    paths_die(112, 5, 400);
}

#[test]
fn a_lost_word_is_said_again() {
    for seed in 0..20 {
        let mut pair = Pair::new(config(), seed);
        talk(&mut pair, 20, 64);
        pair.fault = Fault { loss_permille: 1000, ..Fault::default() };
        pair.send_many(1, 64);
        pair.run_for(ROUND);
        pair.fault = Fault::default();
        // The Ack of the earlier datagrams may be delayed, and restarts the timer of this one.
        // After that a tail probe leaves and is answered.
        pair.run_for(LATER.times(2) + LATER.over(4));
        assert_eq!(pair.delivered(), 21, "seed {seed}");
    }
}
