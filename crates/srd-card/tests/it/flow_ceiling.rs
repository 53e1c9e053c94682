//! The ceiling of a flow (L4) in the card, for flows with an entry in the flow table and without.
#![allow(clippy::unwrap_used)]

use crate::lane::*;
use srd_card::limits::Limit;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Guest};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::EniId;
use std::sync::Arc;

/// Sends datagrams of 8,900 bytes at 10 Gb/s for 100 ms, with these source ports by turns. The
/// table has space for one flow, that of port 1. Returns the number of bits that arrive.
fn arrived(ports_of: &[u16]) -> u64 {
    let world = world(&[], [open(), open(), open()]);
    let mut card = Card::new(HOST, Arc::new(Rules::compile(&world, HOST)), Secret::known(7));
    let profile = Profile::of(InstanceType::find("c7i.24xlarge").unwrap());
    let profile = profile.with_tracking_allowance(1);
    let add = |n| {
        let guest = Guest { eni: EniId(n), timeouts: Timeouts::DEFAULT };
        card.add_instance(Instant::ZERO, &profile, &[guest])[0]
    };
    let ports = [0, 1].map(add);
    let mut around = Delivered::default();
    let mut send = |card: &mut Card, now, from: u16, bytes: usize| {
        let mut frame = vec![0; OFFLOAD_BYTES];
        let head = [from.to_be_bytes(), 80_u16.to_be_bytes()].concat();
        let payload = [&head[..], &vec![0; bytes - 24]].concat();
        frame.extend_from_slice(&packet((0, 1), UDP, 0, &payload));
        card.from_guest(now, ports[0], frame, &mut around);
        around.0.clear();
    };
    send(&mut card, Instant::ZERO, 1, 60);
    let mut at = Instant::ZERO;
    let end = at + Duration::from_millis(100);
    for from in ports_of.iter().cycle() {
        if at >= end {
            break;
        }
        card.poll(at, &mut Delivered::default());
        send(&mut card, at, *from, 8900);
        at += Duration::from_nanos(7_120);
    }
    assert!(card.held(ports[0], Limit::Flow).dropped > 0);
    card.counts(ports[1]).rx_bytes * 8
}

/// In an earlier version, a flow that found the table of flows full had no ceiling.
#[test]
fn regression_flows_without_an_entry_have_a_ceiling() {
    let of_one = arrived(&[1]);
    // 5 Gb/s for 100 ms, with a burst and packets that wait.
    assert!((400_000_000..700_000_000).contains(&of_one), "{of_one}");
    for ports in [&[2][..], &[2, 3, 4]] {
        assert!(arrived(ports).abs_diff(of_one) < 1_000_000, "{ports:?}");
    }
}
