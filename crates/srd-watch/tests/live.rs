//! A burst between two network namespaces, watched from both ends. Needs the right to make them.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../../srd-net/tests/support/veth.rs"]
mod veth;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use srd_watch::live::{self, Options};
use srd_watch::session::Report;
use srd_watch::{Burst, Model, Settings, Way};
use veth::{INTERFACE, Pair};

const FLOWS: usize = 8;
const PACKETS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(20);

fn options(interface: &str) -> Options {
    Options {
        interfaces: vec![interface.to_owned()],
        model: Model::of_rate(10_000_000, None),
        settings: Settings::default(),
        time: Some(PATIENCE),
        ring_bytes: 8 << 20,
        kept_bytes: 1 << 20,
        counters_every: Duration::from_millis(100),
    }
}

/// Watches one end until bursts with as many bytes as are sent were reported.
fn watch(ready: &Barrier) -> Vec<Burst> {
    let (mut bursts, bytes) = (Vec::new(), Cell::new(0));
    let (mut began, whole) = (None, (FLOWS * PACKETS * 1028) as u64);
    // The first look is when the sockets are there.
    let told = Cell::new(false);
    let stop = || {
        if !told.replace(true) {
            ready.wait();
        }
        bytes.get() >= whole
    };
    let outcomes = live::run(&options(INTERFACE), &stop, &mut |report| match report {
        Report::Began(_) => began = began.or_else(|| Some(Instant::now())),
        Report::Ended(burst, kept) => {
            assert!(kept.is_some_and(|kept| kept.count().0 > 0));
            bytes.set(bytes.get() + burst.bytes);
            bursts.push(*burst);
        }
    });
    let outcomes = outcomes.unwrap();
    assert_eq!(outcomes[0].lost, 0);
    assert!(outcomes[0].error.is_none());
    bursts
}

#[test]
fn a_burst_of_eight_flows_is_found_at_both_ends_and_every_flow_is_named() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    pair.acquaint();
    let ready = Barrier::new(3);
    std::thread::scope(|scope| {
        let ends = [0, 1].map(|end| {
            let (pair, ready) = (&pair, &ready);
            scope.spawn(move || pair.within(end, || watch(ready)))
        });
        let sent: BTreeSet<u16> = pair.within(0, || {
            let sockets: Vec<UdpSocket> =
                (0..FLOWS).map(|_| UdpSocket::bind("10.77.0.1:0").unwrap()).collect();
            ready.wait();
            for _ in 0..PACKETS {
                for socket in &sockets {
                    socket.send_to(&[7; 1000], "10.77.0.2:9").unwrap();
                }
            }
            sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect()
        });
        for (end, way) in ends.into_iter().zip([Way::Out, Way::In]) {
            let bursts = end.join().unwrap();
            let of_way = bursts.iter().filter(|burst| burst.way == way);
            let flows = of_way.clone().flat_map(|burst| &burst.flows);
            // A kernel sends neighbour and group messages of its own when it likes.
            let ports = flows.map(|share| share.flow.outer.ports).filter(|ports| ports.1 == 9);
            let named: BTreeSet<u16> = ports.map(|ports| ports.0).collect();
            assert_eq!(named, sent);
            let counters = of_way.flat_map(|burst| &burst.limits).map(|limit| limit.counter);
            let counters: BTreeSet<&str> = counters.collect();
            let expected = if way == Way::In { "bw_in" } else { "bw_out" };
            assert!(counters.iter().all(|counter| counter.starts_with(expected)), "{counters:?}");
        }
    });
}

#[test]
fn an_interface_that_is_not_there_is_an_error() {
    let stop = || false;
    let error = live::run(&options("nosuch0"), &stop, &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("nosuch0: "), "{error}");
}

#[test]
fn an_interface_that_goes_away_ends_its_watch() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let began = Instant::now();
    let outcomes = pair.within(0, || {
        let told = Cell::new(false);
        let stop = || {
            if !told.replace(true) {
                pair.ip(0, &["link", "del", INTERFACE]);
            }
            false
        };
        live::run(&options(INTERFACE), &stop, &mut |_| ()).unwrap()
    });
    assert!(outcomes[0].error.is_some());
    assert!(began.elapsed() < PATIENCE);
}
