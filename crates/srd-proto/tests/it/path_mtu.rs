//! A path MTU that falls and rises during a transfer. It is found and reported once, without a long
//! silence and without a storm of packets.

use crate::support::{Fault, Pair};
use srd_proto::{
    Class, Config, Datagram, Duration, Entropy, Event, Protection, Qpn, SendError, Status,
};

const FULL: u16 = 8956;
const SMALL: u16 = 1472;
const MS: Duration = Duration::from_millis(1);

fn config(protection: Protection) -> Config {
    Config {
        protection,
        packet_bytes_max: FULL,
        keepalive: Duration::from_secs(1),
        peer_timeout: Duration::from_millis(1500),
        ..Config::sockets()
    }
}

fn modes() -> [Protection; 2] {
    [Protection::Plain, Protection::Static([9; 32])]
}

fn datagram(bytes: usize, imm: u64) -> Datagram {
    Datagram {
        src_qpn: Qpn(1),
        dst_qpn: Qpn(7),
        imm,
        payload: vec![0; bytes].into(),
        class: Class::Bulk,
        user: imm,
    }
}

/// A sender that limits its datagrams to the size that the endpoint accepts, as a card does.
struct Sender {
    pair: Pair,
    next: u64,
    /// Number of events that were read, and of completions among them.
    read: usize,
    ended: u64,
}

impl Sender {
    fn new(protection: Protection, seed: u64) -> Self {
        Self::with(config(protection), seed)
    }

    fn with(config: Config, seed: u64) -> Self {
        let mut pair = Pair::new(config, seed);
        pair.check_payload = false;
        Self { pair, next: 0, read: 0, ended: 0 }
    }

    /// Keeps twenty datagrams in flight for `ms` milliseconds; returns the longest time without an
    /// arrival.
    fn run(&mut self, ms: u64) -> Duration {
        let (mut silence, mut longest) = (0, 0);
        for _ in 0..ms {
            let before = self.pair.b.stats().recv_wrs;
            self.fill(20);
            self.pair.run_for(MS);
            let arrived = self.pair.b.stats().recv_wrs > before;
            silence = if arrived { 0 } else { silence + 1 };
            longest = longest.max(silence);
        }
        Duration::from_millis(longest)
    }

    fn fill(&mut self, most: u64) {
        let new = &self.pair.events[self.read..];
        let ended = new.iter().filter(|event| matches!(event, Event::Completed { .. })).count();
        self.ended += ended as u64;
        self.read = self.pair.events.len();
        while self.next - self.ended < most {
            let full = self.pair.a.payload_bytes_max();
            let (pair, mut bytes) = (&mut self.pair, full);
            loop {
                match pair.a.send(pair.now, pair.b_at_a, datagram(bytes, self.next)) {
                    Ok(_) => break,
                    Err(SendError::TooLarge { max_bytes }) => bytes = max_bytes,
                    Err(error) => panic!("{error:?}"),
                }
            }
            self.next += 1;
        }
    }

    fn packets(&self) -> u64 {
        self.pair.a.stats().tx_pkts + self.pair.b.stats().tx_pkts
    }

    fn told(&self) -> Vec<u16> {
        let works = |e: &Event| match e {
            Event::PathMtu { works_bytes, .. } => Some(*works_bytes),
            _ => None,
        };
        self.pair.events.iter().filter_map(works).collect()
    }
}

#[test]
fn regression_a_path_mtu_that_falls_in_mid_transfer_is_found_and_told_once() {
    for (seed, mode) in (0..).zip(modes()) {
        let mut sender = Sender::new(mode, seed);
        sender.run(200);
        assert_eq!(sender.told(), []);
        sender.pair.fault.swallows_above_bytes = SMALL.into();
        let silence = sender.run(2000);
        assert!(silence < Duration::from_millis(200), "{silence:?} of silence");
        assert_eq!(sender.told(), [SMALL], "told once, exactly");
        let statuses = sender.pair.completions();
        let failed = statuses.iter().filter(|s| **s != Status::Ok).count();
        assert!((1..=40).contains(&failed), "{failed} were too large");
        assert!(statuses.iter().all(|s| matches!(s, Status::Ok | Status::LocalBadLength)));
        assert!(sender.pair.down_reasons().is_empty());
    }
}

/// Links of 1240, 1200 and 576 bytes, below the minimum MTU of IPv6, as nested tunnels have.
#[test]
fn regression_a_path_mtu_below_that_of_ipv6_is_found_and_the_way_back_too() {
    for (seed, mode) in (0..).zip(modes()) {
        for passes in [1212, 1172, 548] {
            let config = Config { packet_bytes_max: SMALL, ..config(mode.clone()) };
            let mut sender = Sender::with(config, seed);
            sender.run(200);
            sender.pair.fault.swallows_above_bytes = passes.into();
            let silence = sender.run(2000);
            assert!(silence < Duration::from_millis(400), "{passes}: {silence:?} of silence");
            let told = sender.told();
            assert_eq!(told.len(), 1, "{passes}: {told:?}");
            assert!((passes - 16..=passes).contains(&told[0]), "{passes}: {told:?}");
            sender.pair.fault.swallows_above_bytes = 0;
            sender.run(3000);
            assert_eq!(sender.told()[1..], [SMALL], "{passes}");
            assert!(sender.pair.down_reasons().is_empty());
        }
    }
}

#[test]
fn regression_a_path_mtu_that_rises_again_is_found_within_seconds_and_nothing_stops_meanwhile() {
    for (seed, mode) in (0..).zip(modes()) {
        let mut sender = Sender::new(mode, seed);
        sender.run(50);
        sender.pair.fault.swallows_above_bytes = SMALL.into();
        sender.run(1000);
        sender.pair.fault.swallows_above_bytes = 4000;
        let silence = sender.run(5000);
        assert!(silence < Duration::from_millis(200), "{silence:?} of silence");
        let told = sender.told();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!((3984..=4000).contains(&told[1]), "{told:?}");
        sender.pair.fault.swallows_above_bytes = 0;
        let silence = sender.run(3000);
        assert!(silence < Duration::from_millis(200), "{silence:?} of silence");
        assert_eq!(sender.told()[2..], [FULL]);
        let limit = sender.pair.a.payload_bytes_max();
        let full = datagram(limit, 0);
        assert!(sender.pair.a.send(sender.pair.now, sender.pair.b_at_a, full).is_ok());
    }
}

#[test]
fn regression_packets_that_do_not_pass_make_no_storm() {
    for (seed, (mode, mtu_discovery)) in
        (0..).zip(modes().into_iter().flat_map(|mode| [(mode.clone(), true), (mode, false)]))
    {
        // Without MTU discovery, a packet that does not pass is sent again ever more slowly.
        let config = Config { mtu_discovery, ..config(mode) };
        let mut sender = Sender::with(config, seed);
        sender.run(50);
        sender.pair.fault.swallows_above_bytes = SMALL.into();
        let before = sender.packets();
        sender.fill(20);
        sender.pair.run_for(Duration::from_secs(1));
        let packets = sender.packets() - before;
        assert!(packets < 800, "{packets} packets in a second, mtu_discovery {mtu_discovery}");
    }
}

#[test]
fn losses_of_congestion_are_not_taken_for_a_smaller_path_mtu() {
    for seed in 0..15 {
        let mut sender = Sender::new(Protection::Plain, seed);
        sender.run(20);
        for loss_permille in [100, 300, 500] {
            sender.pair.fault = Fault { loss_permille, ..Fault::default() };
            sender.run(300);
        }
        assert_eq!(sender.told(), [], "seed {seed}");
        assert!(sender.pair.completions().iter().all(|s| *s == Status::Ok));
    }
}

#[test]
fn a_link_that_passes_nothing_for_a_while_has_no_smaller_path_mtu_after_it() {
    let mut sender = Sender::new(Protection::Static([9; 32]), 1);
    sender.run(50);
    sender.pair.fault.loss_permille = 1000;
    sender.run(900);
    sender.pair.fault.loss_permille = 0;
    sender.run(1500);
    assert_eq!(sender.told(), []);
}

#[test]
fn regression_large_unreliable_datagrams_alone_find_a_smaller_path_mtu_and_a_larger_one() {
    for (seed, mode) in (0..).zip(modes()) {
        let mut sender = Sender::new(mode, seed);
        let pair = &mut sender.pair;
        let send = |pair: &mut Pair| {
            let full = pair.a.unreliable_bytes_max();
            let one = |bytes| datagram(bytes, 0);
            let path = Entropy(5);
            let to = pair.b_at_a;
            match pair.a.send_unreliable(pair.now, to, path, one(full)) {
                Err(SendError::TooLarge { max_bytes }) => {
                    pair.a.send_unreliable(pair.now, to, path, one(max_bytes)).unwrap();
                }
                other => other.unwrap(),
            }
            pair.run_for(MS.times(100));
        };
        for _ in 0..10 {
            send(pair);
        }
        assert_eq!(pair.b.stats().unreliable_rx_pkts, 10);
        pair.fault.swallows_above_bytes = SMALL.into();
        for _ in 0..20 {
            send(pair);
        }
        let lost = 30 - pair.b.stats().unreliable_rx_pkts;
        assert!(lost <= 10, "{lost} of a tenth of a second each");
        pair.fault.swallows_above_bytes = 0;
        for _ in 0..40 {
            send(pair);
        }
        assert_eq!(sender.told(), [SMALL, FULL]);
    }
}

/// E3c: a peer at our own address gets packets that no interface would pass, and another peer does
/// not. A receiver with many senders grants at least one such packet.
#[test]
fn packets_to_our_own_address_may_be_larger() {
    for protection in modes() {
        let small = Config { packet_bytes_max: SMALL, ..config(protection) };
        let mut far = Pair::new(small.clone(), 5);
        let own_ip = Some(far.ips[1]);
        let most = far.a.payload_bytes_max();
        let near = Config { own_ip, own_packet_bytes_max: FULL, ..small };
        let (mut pair, mut elsewhere) = (Pair::new(near.clone(), 5), Pair::new(near.clone(), 5));
        pair.check_payload = false;
        let larger = most + usize::from(FULL - SMALL);
        assert_eq!(pair.a.payload_bytes_max(), most, "what every peer takes");
        assert_eq!(pair.a.payload_bytes_max_to(pair.b_at_a), larger);
        assert_eq!(far.a.payload_bytes_max_to(far.b_at_a), most);
        // The own address is that of `b`, so `b` sends to another address.
        assert_eq!(elsewhere.b.payload_bytes_max(), most);
        for _ in 0..50 {
            pair.a.send(pair.now, pair.b_at_a, datagram(larger, 1)).unwrap();
            pair.run_for(MS);
        }
        pair.run_for(Duration::from_millis(100));
        assert_eq!(pair.completions().len(), 50);
        assert!(pair.completions().iter().all(|status| *status == Status::Ok));
        let refused = elsewhere.a.send(elsewhere.now, elsewhere.b_at_a, datagram(larger + 1, 1));
        assert_eq!(refused, Err(SendError::TooLarge { max_bytes: larger }));
        let refused = far.a.send(far.now, far.b_at_a, datagram(most + 1, 1));
        assert_eq!(refused, Err(SendError::TooLarge { max_bytes: most }));
    }
}
