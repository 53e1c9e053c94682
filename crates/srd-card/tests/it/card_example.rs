//! The example in the documentation of `Card`: instances of one host, and a rule that admits only
//! UDP to port 53.

use std::sync::Arc;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Cause, Environment, FrameRoute, Guest, PortId};
use srd_proto::{Instant, Secret};
use srd_vpc::compile::Rules;
use srd_vpc::id::EniId;
use srd_vpc::judge::{Reason, Service};
use srd_vpc::object::Traffic;

// A cloud of three instances in one subnet, 10.0.0.10 to 10.0.0.12.
use crate::lane::{HOST, rule, world};

#[derive(Default)]
struct Delivered(Vec<PortId>);

impl Environment for Delivered {
    fn to_guest(&mut self, port: PortId, _frame: Vec<u8>) {
        self.0.push(port);
    }
    fn to_host(&mut self, _: FrameRoute<'_>, _: Vec<u8>) {}
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

/// A frame from 10.0.0.10 to 10.0.0.11: an offload header, and a UDP packet to this port.
fn frame(port: u8) -> Vec<u8> {
    let mut frame = vec![0; OFFLOAD_BYTES];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 10, 10, 0, 0, 11]);
    frame.extend([0x30, 0x39, 0, port, 0, 8, 0, 0]);
    frame
}

#[test]
fn a_card_delivers_packets_that_a_rule_admits_and_counts_the_others() {
    let rules = || {
        let dns = rule(1, false, Traffic::Udp(53, 53), "10.0.0.0/8");
        let all = rule(2, true, Traffic::All, "0.0.0.0/0");
        vec![dns, all]
    };
    let world = world(&[], [rules(), rules(), rules()]);

    let now = Instant::ZERO;
    let mut card = Card::new(HOST, Arc::new(Rules::compile(&world, HOST)), Secret::known(1));
    let profile = Profile::of(InstanceType::find("c7i.large").unwrap());
    let [a, b] = [0, 1].map(|n| {
        let guest = Guest { eni: EniId(n), timeouts: Timeouts::DEFAULT };
        card.add_instance(now, &profile, &[guest])[0]
    });

    let mut delivered = Delivered::default();
    card.from_guest(now, a, frame(53), &mut delivered);
    card.from_guest(now, a, frame(80), &mut delivered);
    assert_eq!(delivered.0, [b]);
    assert_eq!(card.drops(b).of(Cause::Rule(Reason::GroupsIn)), 1);
}
