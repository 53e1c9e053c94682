//! Extent of a change: packets outside of the extent have equal verdicts under the old and the new
//! tables.
#![allow(clippy::unwrap_used)]

use crate::generate;
use crate::generate::Dice;
use srd_vpc::compile::{Concern, Flow, Rules};
use srd_vpc::id::*;
use srd_vpc::judge::Origin;
use srd_vpc::object::*;
use srd_vpc::packet::Packet;

const HOST: &str = "h0";

/// Changes one random object.
fn change(dice: &mut Dice, world: &mut World) {
    let eni = EniId(dice.below(24));
    let other = generate::world(dice);
    match dice.below(12) {
        0 => {
            let id = RouteTableId(dice.below(8));
            *world.route_tables.get_mut(&id).unwrap() = other.route_tables[&id].clone();
        }
        1 => {
            let id = AclId(dice.below(8));
            *world.acls.get_mut(&id).unwrap() = other.acls[&id].clone();
        }
        2 | 3 => {
            let id = GroupId(dice.below(12));
            *world.groups.get_mut(&id).unwrap() = other.groups[&id].clone();
        }
        4 => {
            let id = AllocationId(dice.below(8));
            *world.addresses.get_mut(&id).unwrap() = other.addresses[&id].clone();
        }
        5 => {
            let id = NatGatewayId(dice.below(5));
            world.nat_gateways.get_mut(&id).unwrap().address = other.nat_gateways[&id].address;
        }
        6 => {
            let id = InternetGatewayId(dice.below(4));
            world.internet_gateways.get_mut(&id).unwrap().vpc = other.internet_gateways[&id].vpc;
        }
        7 => {
            let id = SubnetId(dice.below(12));
            world.subnets.get_mut(&id).unwrap().acl = other.subnets[&id].acl;
        }
        // Changes an interface: its addresses, groups and checks, or its presence.
        8 | 9 => _ = world.enis.insert(eni, other.enis[&eni].clone()),
        10 if dice.one_in(2) => _ = world.enis.remove(&eni),
        _ => {
            let instance = InstanceId(dice.below(24));
            let host = Some(dice.pick(&["h0", "h1", "h2"]).to_string());
            world.instances.get_mut(&instance).unwrap().host = host;
        }
    }
}

/// Numbers of verdicts that were kept, that were evaluated again, and that were evaluated again
/// with an unchanged result.
#[derive(Debug, Default)]
struct Count {
    kept: u64,
    named: u64,
    in_vain: u64,
}

fn compare(dice: &mut Dice, world: &World, old: &Rules, new: &Rules, count: &mut Count) {
    let Concern::These(concerned) = old.concern(new) else { return };
    for _ in 0..40 {
        let (origin, packet) = generate::packet(dice, world);
        let Packet { source, destination, .. } = packet;
        // Any interface that does not have the source address refuses the packet, before and after
        // the change.
        let mut sender_or_any = || match origin {
            Origin::Eni(id) if dice.one_in(2) => id,
            _ => EniId(dice.below(24)),
        };
        let (eni, from) = (sender_or_any(), sender_or_any());
        for flow in [Flow::New, Flow::Established] {
            let of_groups = flow == Flow::New && concerned.groups.contains(&eni);
            let named = of_groups || concerned.ways.contains(&eni);
            let sent = old.send(eni, &packet, flow) == new.send(eni, &packet, flow);
            assert!(sent || named || concerned.addresses.contains(&destination), "{packet:?}");
            let received = |rules: &Rules| {
                let srd_vpc::compile::SenderPlace { place, vpc } = rules
                    .sender(eni, from, source)
                    .map_err(|_| srd_vpc::judge::Reason::NotItsAddress)?;
                let taken = rules.receive(eni, &packet, Some(vpc), rules.crosses(place, eni), flow);
                let elsewhere = rules.lead_elsewhere(eni, source, vpc);
                taken.map(|tracking| (place.clone(), vpc, elsewhere, tracking))
            };
            let taken = received(old) == received(new);
            assert!(taken || named || concerned.addresses.contains(&source), "{packet:?}");
            let outside = |rules: &Rules| rules.receive(eni, &packet, None, true, flow);
            assert!(outside(old) == outside(new) || named, "{packet:?}");
            let named = named || concerned.addresses.contains(&destination);
            *(if named { &mut count.named } else { &mut count.kept }) += 1;
            count.in_vain += u64::from(named && sent);
        }
    }
}

#[test]
fn verdicts_that_a_change_does_not_name_are_the_same_after_it() {
    let mut count = Count::default();
    for seed in 0..400 {
        let dice = &mut Dice(seed);
        let mut world = generate::world(dice);
        let mut old = Rules::compile(&world, HOST);
        for _ in 0..10 {
            change(dice, &mut world);
            let new = Rules::compile(&world, HOST);
            if world.enis.len() == 24 {
                compare(dice, &world, &old, &new, &mut count);
            }
            old = new;
        }
    }
    assert!(count.kept > 50_000 && count.named - count.in_vain > 500, "{count:?}");
}
