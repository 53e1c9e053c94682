//! Pairs with keys and a session, and addresses outside of the pair.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use srd_proto::{Class, Config, Datagram, DropReason, Duration, Endpoint, Protection, Qpn};

use super::{InFlight, Pair};

pub(crate) const HELLO: u8 = 4;
pub(crate) const HELLO_REPLY: u8 = 5;
pub(crate) const RETRY: u8 = 6;
pub(crate) const CLOSE: u8 = 9;
pub(crate) const CHALLENGE: u8 = 10;

pub(crate) fn keyed() -> Config {
    let protection = Protection::Static([9; 32]);
    Config { protection, packet_bytes_max: 4122, ..Config::default() }
}

pub(crate) fn modes() -> [Config; 2] {
    [keyed(), Config { protection: Protection::JobKey([7; 32]), ..keyed() }]
}

pub(crate) fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, last))
}

pub(crate) fn elsewhere() -> SocketAddr {
    SocketAddr::new(ip(9), 50_000)
}

pub(crate) fn at(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), 7471)
}

/// A datagram of one byte, for the queue pair that every endpoint of these tests has.
pub(crate) fn datagram() -> Datagram {
    Datagram {
        src_qpn: Qpn(1),
        dst_qpn: Qpn(7),
        imm: 0,
        payload: vec![1].into(),
        class: Class::Bulk,
        user: 0,
    }
}

pub(crate) fn drops(endpoint: &Endpoint, reason: DropReason) -> u64 {
    endpoint.stats().drops[reason as usize]
}

/// A pair of endpoints with a session in which datagrams were delivered.
pub(crate) fn met(config: Config, seed: u64) -> Pair {
    let mut pair = Pair::new(config, seed);
    pair.recorded = Some(Vec::new());
    pair.send_many(5, 1000);
    pair.run_until_idle(Duration::from_millis(100));
    pair.assert_all_completed(5);
    pair
}

pub(crate) fn recorded(pair: &mut Pair, to_b: bool) -> Vec<InFlight> {
    let all = pair.recorded.replace(Vec::new()).unwrap();
    all.into_iter().filter(|packet| packet.to_b == to_b).collect()
}

/// Restarts b with a large epoch, and then with a much smaller epoch. Each further context of the
/// second run has a larger epoch than the last, but there are too few of them to reach the first
/// run's epoch. Packets of b are accepted again, though not at once.
pub(crate) fn is_heard_with_an_earlier_epoch(pair: &mut Pair) {
    pair.restart_b_with(1_000_000_000);
    pair.send_back(3, 200);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.delivered_back(), 3);
    // A long idle time between the two restarts.
    pair.run_for(Duration::from_secs(20));
    pair.restart_b_with(0);
    let mut waited = 0;
    while pair.delivered_back() < 4 {
        pair.send_back(1, 200);
        pair.run_for(Duration::from_millis(500));
        waited += 1;
        assert!(waited < 20, "still refused after {waited} half seconds");
    }
}
