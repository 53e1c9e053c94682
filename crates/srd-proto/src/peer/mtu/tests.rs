//! A path MTU that falls and rises, without a network.

use core::net::Ipv4Addr;

use super::*;
use alloc::vec::Vec;

/// Simulates two paths, one of which passes smaller packets only. A probe of larger sizes uses the
/// other path, so the size is raised; packets on the first path are then lost.
#[test]
fn regression_a_size_that_only_some_paths_pass_is_tried_ever_more_rarely() {
    let config = Config { packet_bytes_max: 1472, ..Config::sockets() };
    let mut mtu = Mtu::new(&config, Ipv4Addr::LOCALHOST.into(), Instant::ZERO);
    let second = |n: u64| Instant::ZERO + Duration::from_secs(n);
    mtu.settle(second(1), 1268);
    let mut falls = Vec::new();
    for now in (2..3600).map(second) {
        mtu.on_departure(now);
        if mtu.stage == Stage::Raise {
            mtu.on_answer(now, 1472);
            assert_eq!(mtu.limit(), 1472);
            mtu.settle(now + Duration::from_millis(200), 1268);
            falls.push(now);
        }
    }
    assert!(falls[0] <= second(3) && falls[1] <= second(6), "at first it is tried soon");
    assert!(falls.len() < 65, "{} falls in an hour", falls.len());
    // After a size that lasts, the next probe follows after the shortest time again.
    let last = *falls.last().unwrap();
    let found = last + RAISE_EVERY_MAX + Duration::from_secs(1);
    mtu.on_departure(found);
    mtu.on_answer(found, 1472);
    let later = found + Duration::from_secs(100);
    mtu.settle(later, 1268);
    mtu.on_departure(later + RAISE_EVERY);
    assert_eq!(mtu.stage, Stage::Raise);
}

/// A queue that is full of large packets nearly always has space for small packets only, so it
/// drops large probes although the path passes them. Therefore two rounds without an answer do not
/// reject a size that has passed before; `TRIES_DOUBTED` such rounds do.
#[test]
fn regression_a_full_queue_is_not_taken_for_a_smaller_path_mtu() {
    let config = Config { packet_bytes_max: 8972, ..Config::sockets() };
    let mut mtu = Mtu::new(&config, Ipv4Addr::LOCALHOST.into(), Instant::ZERO);
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
    let round = |mtu: &mut Mtu, now: Instant, most: u16| {
        let mut asked = Vec::new();
        asked.extend(core::iter::from_fn(|| mtu.take_size()));
        asked.into_iter().filter(|size| *size <= most).for_each(|size| mtu.on_answer(now, size));
        mtu.end_wait(now);
    };
    round(&mut mtu, at(1), 8972);
    assert_eq!((mtu.limit(), mtu.stage), (8972, Stage::Settled));
    mtu.on_unreliable(at(1000), 8900);
    round(&mut mtu, at(1010), 1449);
    assert_eq!(mtu.stage, Stage::Search);
    for n in 1..u64::from(TRIES_DOUBTED) {
        round(&mut mtu, at(1010 + 10 * n), 1449);
        assert_eq!((mtu.limit(), mtu.high), (8972, 8973), "round {n} condemns nothing");
    }
    let mut there = mtu;
    round(&mut there, at(1090), 8972);
    assert_eq!((there.limit(), there.stage), (8972, Stage::Settled));
    // The path has become narrower: the doubt ends in a smaller size.
    for n in 0..20 {
        round(&mut mtu, at(1090 + 10 * n), 1449);
    }
    assert_eq!(mtu.stage, Stage::Settled);
    assert!((1449 - RESOLUTION..=1449).contains(&mtu.limit()), "{}", mtu.limit());
}
