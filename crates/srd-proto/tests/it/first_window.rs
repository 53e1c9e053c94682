//! The first window of a sender that has received nothing from the receiver (R5, R11).

use crate::support::Pair;
use srd_proto::{Config, Duration, Protection};

const DATA: u8 = 1;
const PROBE: u8 = 3;
const HELLO: u8 = 4;
/// Less than the time that a packet and its answer take on the wire of the pair.
const BEFORE_AN_ANSWER: Duration = Duration::from_micros(10);
/// Size of each payload. Two datagrams fit into 13 % of the bandwidth-delay product of 175 kB.
const BYTES: usize = 8000;

/// Sends `n` datagrams. Returns the pair, and the types of the packets that the sender has sent
/// before an answer can arrive.
fn opening(config: Config, n: u64) -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(config, 1);
    pair.recorded = Some(Vec::new());
    pair.send_many(n, BYTES);
    pair.run_for(BEFORE_AN_ANSWER);
    let packets = pair.recorded.take().unwrap();
    let kinds = packets.iter().filter(|packet| packet.to_b).map(|packet| packet.kind()).collect();
    (pair, kinds)
}

#[test]
fn a_short_first_window_begins_with_a_probe_and_waits_for_its_answer() {
    let (mut pair, kinds) = opening(Config { unsolicited_percent: 13, ..Config::default() }, 20);
    assert_eq!(kinds, [PROBE, DATA, DATA]);
    // The answer arrives 12 us after the probe left, and does not limit a lone sender.
    pair.run_for(Duration::from_micros(20));
    assert_eq!((pair.delivered(), pair.a.stats().retrans_pkts), (20, 0));
    pair.run_for(Duration::from_micros(50));
    pair.assert_all_completed(20);
}

#[test]
fn a_message_within_the_first_window_needs_no_probe() {
    let (_, kinds) = opening(Config { unsolicited_percent: 13, ..Config::default() }, 2);
    assert_eq!(kinds, [DATA, DATA]);
}

#[test]
fn a_first_window_of_a_round_trip_or_more_needs_no_probe() {
    for unsolicited_percent in [100, 150] {
        let (_, kinds) = opening(Config { unsolicited_percent, ..Config::default() }, 40);
        let most = usize::try_from(175_000 * unsolicited_percent / 100).unwrap() / (BYTES + 36);
        assert_eq!(kinds, vec![DATA; most]);
    }
}

#[test]
fn the_first_window_is_at_least_a_packet() {
    let (mut pair, kinds) = opening(Config { unsolicited_percent: 1, ..Config::default() }, 5);
    assert_eq!(kinds, [PROBE, DATA]);
    pair.run_for(Duration::from_micros(100));
    pair.assert_all_completed(5);
}

#[test]
fn a_sealed_first_window_begins_with_a_probe_behind_the_handshake() {
    let protection = Protection::JobKey([7; 32]);
    let config = Config { protection, unsolicited_percent: 13, ..Config::default() };
    let (mut pair, _) = opening(config, 20);
    pair.recorded = Some(Vec::new());
    pair.run_for(Duration::from_micros(100));
    let packets = pair.recorded.take().unwrap();
    let kinds: Vec<u8> =
        packets.iter().filter(|p| p.to_b && p.kind() != HELLO).map(|p| p.kind()).collect();
    assert!(kinds.starts_with(&[PROBE, DATA, DATA]), "{kinds:?}");
    pair.assert_all_completed(20);
}
