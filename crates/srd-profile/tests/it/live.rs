//! Packets between two network namespaces, profiled live. The test needs the privilege to create
//! namespaces.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

use std::cell::Cell;
use std::net::UdpSocket;
use std::time::Duration;

use crate::veth::{INTERFACE, Pair};
use srd_profile::live::{self, Options};
use srd_profile::{Filter, report};

const PACKETS: usize = 500;
const PATIENCE: Duration = Duration::from_secs(60);

fn options(interface: &str) -> Options {
    let interfaces = vec![interface.to_owned()];
    Options { interfaces, headroom: 0.2, time: PATIENCE, ring_bytes: 8 << 20 }
}

#[test]
fn what_is_sent_is_seen_and_the_report_is_of_what_was_seen_until_it_is_stopped() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    pair.acquaint();
    let (outcomes, port) = pair.within(0, || {
        let port = Cell::new(0);
        let (sent, all) = (Cell::new(false), Cell::new(0));
        let stop = || {
            if !sent.replace(true) {
                let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
                port.set(socket.local_addr().unwrap().port());
                (0..PACKETS).for_each(|_| {
                    socket.send_to(&[7; 1000], "10.77.0.2:9").unwrap();
                });
            }
            all.get() >= PACKETS as u64
        };
        let progress = &mut |now: live::Progress| all.set(now.packets);
        let outcomes = live::run(&options(INTERFACE), &stop, progress).unwrap();
        (outcomes, port.get())
    });
    let [outcome] = &outcomes[..] else { panic!("{} interfaces", outcomes.len()) };
    assert!(outcome.error.is_none());
    let seen = &outcome.seen;
    assert!(seen.seen_ns < PATIENCE.as_nanos() as u64);
    assert_eq!(seen.lost, 0);
    let flow = &seen.flows[0];
    assert_eq!((flow.packets, flow.flow.outer.ports), (PACKETS as u64, (port, 9)));
    assert_eq!(flow.bytes, PACKETS as u64 * 1028);
    let seen = outcomes.into_iter().next().unwrap().seen;
    let report = report(seen, &Filter::default(), None);
    assert!(!report.choices.families.is_empty());
    assert!(srd_profile::text::report(&report).contains("10.77.0.1"));
}

#[test]
fn an_interface_that_is_not_there_is_an_error() {
    let error = live::run(&options("nosuch0"), &|| false, &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("nosuch0: "), "{error}");
}
