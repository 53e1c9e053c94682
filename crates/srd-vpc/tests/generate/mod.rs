//! Random worlds and packets. Values come from small ranges, so that rules, routes and addresses
//! often match.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use srd_vpc::id::*;
use srd_vpc::judge::Origin;
use srd_vpc::object::*;
use srd_vpc::packet::{Inner, Packet};

/// SplitMix64 random generator: equal seeds make equal worlds.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    pub(crate) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        let at = usize::try_from(self.below(all.len() as u64)).unwrap();
        all[at].clone()
    }
    fn small(&mut self, n: u8) -> u8 {
        u8::try_from(self.below(n.into())).unwrap()
    }
}

const PORTS: [u16; 5] = [0, 22, 80, 443, u16::MAX];

fn traffic(dice: &mut Dice) -> Traffic {
    let (a, b) = (dice.pick(&PORTS), dice.pick(&PORTS));
    let (first, last) = (a.min(b), a.max(b));
    let kind = |dice: &mut Dice| (!dice.one_in(3)).then(|| dice.pick(&[0, 3, 8, 128, 129]));
    match dice.below(11) {
        0 | 1 => Traffic::All,
        2 | 3 => Traffic::Tcp(first, last),
        4 => Traffic::Tcp(0, u16::MAX),
        5 => Traffic::Udp(0, u16::MAX),
        6 => Traffic::Udp(first, last),
        7 => Traffic::Icmp(kind(dice), kind(dice)),
        8 => Traffic::Icmpv6(kind(dice), kind(dice)),
        _ => Traffic::Protocol(dice.pick(&[1, 6, 17, 47, 58])),
    }
}

fn v4(vpc: u8, subnet: u8, host: u8) -> Ipv4Addr {
    // Clouds 0 and 3 have the same addresses.
    Ipv4Addr::new(10, vpc % 3, subnet, host)
}

fn v6(vpc: u8, subnet: u8, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2600, vpc.into(), 0, subnet.into(), 0, 0, 0, host.into())
}

fn address(dice: &mut Dice) -> IpAddr {
    let (vpc, subnet, host) = (dice.small(4), dice.small(3), dice.small(8) + 2);
    match dice.below(16) {
        14 => v4(vpc, subnet, 20 + dice.small(5)).into(),
        0 => Ipv4Addr::new(198, 51, 100, dice.small(6)).into(),
        1 => Ipv4Addr::new(8, 8, 8, dice.small(3)).into(),
        2 => Ipv4Addr::new(169, 254, 169, dice.pick(&[123, 253, 254, 9])).into(),
        3 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, dice.small(3).into()).into(),
        4 => {
            Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, dice.pick(&[0x123, 0x253, 0x254, 9])).into()
        }
        5 => Ipv4Addr::new(10, vpc % 3, 0, 2).into(),
        6..10 => v6(vpc, subnet, host).into(),
        _ => v4(vpc, subnet, host).into(),
    }
}

fn block(dice: &mut Dice) -> IpNet {
    let at = address(dice);
    let length = if at.is_ipv4() {
        dice.pick(&[0, 0, 8, 16, 24, 28, 32])
    } else {
        dice.pick(&[0, 0, 32, 64, 80, 128])
    };
    IpNet::new(at, length).unwrap().trunc()
}

/// Returns a world of four clouds with three subnets each. Two clouds have equal addresses;
/// everything else is random.
pub(crate) fn world(dice: &mut Dice) -> World {
    let mut world = World { internet_private: dice.one_in(4), ..World::default() };
    for list in 0..3 {
        let entries = (0..dice.below(4)).map(|_| block(dice)).collect();
        let list =
            (PrefixListId(list), PrefixList { name: String::new(), max_entries: 9, entries });
        world.prefix_lists.insert(list.0, list.1);
    }
    for placement in 0..2 {
        let strategy = if placement == 0 { Strategy::Cluster } else { Strategy::Spread };
        world
            .placements
            .insert(PlacementId(placement), Placement { name: String::new(), strategy });
    }
    for vpc in 0..4u8 {
        cloud(dice, &mut world, vpc);
    }
    for id in 0..4 {
        let (requester, accepter) = (VpcId(dice.below(4)), VpcId(dice.below(4)));
        let active = !dice.one_in(4);
        let peering = Peering { name: String::new(), requester, accepter, active };
        world.peerings.insert(PeeringId(id), peering);
    }
    gateways(dice, &mut world);
    world
}

fn cloud(dice: &mut Dice, world: &mut World, n: u8) {
    let id = VpcId(n.into());
    let mut ipv4 = vec![Ipv4Net::new(v4(n, 0, 0), 16).unwrap()];
    if dice.one_in(4) {
        ipv4.push(Ipv4Net::new(Ipv4Addr::new(100, 64 + n, 0, 0), 16).unwrap());
    }
    let vpc = Vpc {
        name: String::new(),
        ipv4,
        ipv6: vec![Ipv6Net::new(v6(n, 0, 0), 32).unwrap()],
        main_route_table: RouteTableId(u64::from(n) * 2),
        default_acl: AclId(u64::from(n) * 2),
        default_group: GroupId(u64::from(n) * 3),
        dhcp_options: None,
        dns_support: !dice.one_in(4),
        dns_hostnames: false,
    };
    world.vpcs.insert(id, vpc);
    for k in 0..2 {
        let mut routes: Vec<_> = (0..dice.below(9)).map(|_| route(dice)).collect();
        if !dice.one_in(3) {
            let target = match dice.below(2) {
                0 => Target::InternetGateway(InternetGatewayId(n.into())),
                _ => Target::NatGateway(NatGatewayId(n.into())),
            };
            let destination = Destination::Block("0.0.0.0/0".parse().unwrap());
            routes.push(Route { destination, target, propagated: false });
        }
        let table = RouteTable { name: String::new(), vpc: id, routes };
        world.route_tables.insert(RouteTableId(u64::from(n) * 2 + k), table);
        let entry = |dice: &mut Dice| AclEntry {
            number: u16::from(dice.small(40)) + 1,
            egress: dice.one_in(2),
            allow: !dice.one_in(4),
            traffic: traffic(dice),
            block: block(dice),
        };
        let mut entries: Vec<_> = (0..dice.below(6)).map(|_| entry(dice)).collect();
        if !dice.one_in(4) {
            for (egress, net) in
                [(false, "0.0.0.0/0"), (true, "0.0.0.0/0"), (false, "::/0"), (true, "::/0")]
            {
                let block = net.parse().unwrap();
                entries.push(AclEntry {
                    number: 99,
                    egress,
                    allow: true,
                    traffic: Traffic::All,
                    block,
                });
            }
        }
        let acl = Acl { name: String::new(), vpc: id, entries };
        world.acls.insert(AclId(u64::from(n) * 2 + k), acl);
    }
    for k in 0..3 {
        let mut rules: Vec<_> = (0..dice.below(9)).map(|_| group_rule(dice)).collect();
        for net in ["0.0.0.0/0", "::/0"] {
            for egress in [false, true] {
                let mut rule = group_rule(dice);
                rule.egress = egress;
                rule.peer = RulePeer::Block(net.parse().unwrap());
                rule.traffic = if dice.one_in(2) { Traffic::All } else { rule.traffic };
                rules.extend(dice.one_in(2).then_some(rule));
            }
        }
        let group = Group { name: String::new(), description: String::new(), vpc: id, rules };
        world.groups.insert(GroupId(u64::from(n) * 3 + k), group);
    }
    for k in 0..3u8 {
        let of = |dice: &mut Dice| u64::from(n) * 2 + dice.below(2);
        let subnet = Subnet {
            name: String::new(),
            vpc: id,
            zone: dice.pick(&["a".to_string(), "b".to_string()]),
            ipv4: Ipv4Net::new(v4(n, k, 0), 24).unwrap(),
            ipv6: Some(Ipv6Net::new(v6(n, k, 0), 64).unwrap()),
            route_table: dice.one_in(2).then(|| RouteTableId(of(dice))),
            acl: AclId(of(dice)),
            map_public_ip: false,
        };
        world.subnets.insert(SubnetId(u64::from(n) * 3 + u64::from(k)), subnet);
        for host in 0..2u8 {
            interface(dice, world, [n, k, host]);
        }
    }
}

fn group_rule(dice: &mut Dice) -> GroupRule {
    let peer = match dice.below(6) {
        0 => RulePeer::List(PrefixListId(dice.below(4))),
        1 | 2 => RulePeer::Group(GroupId(dice.below(12))),
        3 => RulePeer::Block(dice.pick(&["0.0.0.0/0", "::/0"]).parse().unwrap()),
        _ => RulePeer::Block(block(dice)),
    };
    let (egress, traffic) = (dice.one_in(2), traffic(dice));
    GroupRule {
        id: GroupRuleId(dice.below(1 << 40)),
        egress,
        traffic,
        peer,
        description: String::new(),
    }
}

fn route(dice: &mut Dice) -> Route {
    let destination = if dice.one_in(5) {
        Destination::List(PrefixListId(dice.below(3)))
    } else {
        Destination::Block(block(dice))
    };
    let target = match dice.below(9) {
        0 => Target::Blackhole,
        1 => Target::EgressOnlyGateway(EgressOnlyGatewayId(dice.below(4))),
        2 => Target::NatGateway(NatGatewayId(dice.below(6))),
        3 => Target::Endpoint(EndpointId(dice.below(4))),
        4 => Target::Eni(EniId(dice.below(26))),
        5 | 6 => Target::Peering(PeeringId(dice.below(5))),
        _ => Target::InternetGateway(InternetGatewayId(dice.below(5))),
    };
    Route { destination, target, propagated: dice.one_in(3) }
}

fn interface(dice: &mut Dice, world: &mut World, [n, k, host]: [u8; 3]) {
    let id = (u64::from(n) * 3 + u64::from(k)) * 2 + u64::from(host);
    let at = dice.small(8) + 2;
    let instance = Instance {
        name: String::new(),
        instance_type: "c7i.large".into(),
        zone: "a".into(),
        placement: dice.one_in(2).then(|| PlacementId(dice.below(2))),
        host: Some(dice.pick(&["h0".to_string(), "h1".to_string(), "h2".to_string()])),
        pod: None,
    };
    world.instances.insert(InstanceId(id), instance);
    let eni = Eni {
        name: String::new(),
        subnet: SubnetId(u64::from(n) * 3 + u64::from(k)),
        mac: [2, 0, 0, n, k, host],
        ipv4: vec![v4(n, k, at), v4(n, k, dice.small(8) + 2)],
        ipv6: vec![v6(n, k, at)],
        ipv4_prefixes: if dice.one_in(6) {
            vec![Ipv4Net::new(v4(n, k, 0), 28).unwrap()]
        } else {
            vec![]
        },
        ipv6_prefixes: vec![],
        groups: (0..=dice.below(2)).map(|_| GroupId(u64::from(n) * 3 + dice.below(3))).collect(),
        source_dest_check: !dice.one_in(4),
        attachment: Some(Attachment {
            id: AttachmentId(id),
            instance: InstanceId(id),
            device_index: 0,
            express: ExpressSpec::default(),
        }),
        tracking: TrackingSpec::default(),
    };
    world.enis.insert(EniId(id), eni);
}

fn gateways(dice: &mut Dice, world: &mut World) {
    for id in 0..4 {
        let vpc = (!dice.one_in(4)).then_some(VpcId(id));
        world
            .internet_gateways
            .insert(InternetGatewayId(id), InternetGateway { name: String::new(), vpc });
        let gateway = EgressOnlyGateway { name: String::new(), vpc: VpcId(dice.below(4)) };
        world.egress_only_gateways.insert(EgressOnlyGatewayId(id), gateway);
        let endpoint = Endpoint {
            name: String::new(),
            vpc: VpcId(dice.below(4)),
            list: PrefixListId(0),
            always_tracked: dice.one_in(2),
        };
        world.endpoints.insert(EndpointId(id), endpoint);
    }
    for id in 0..5 {
        let subnet =
            if id < 4 { u8::try_from(id).unwrap() * 3 + dice.small(3) } else { dice.small(12) };
        let gateway = NatGateway {
            name: String::new(),
            subnet: SubnetId(subnet.into()),
            private: v4(subnet / 3, subnet % 3, 20 + u8::try_from(id).unwrap()),
            address: (!dice.one_in(3)).then(|| AllocationId(dice.below(9))),
        };
        world.nat_gateways.insert(NatGatewayId(id), gateway);
    }
    for id in 0..8u8 {
        let eni = EniId(dice.below(24));
        let private = if dice.one_in(8) { v4(0, 0, 9) } else { world.enis[&eni].ipv4[0] };
        let association = (!dice.one_in(4)).then_some((eni, private));
        let public = Ipv4Addr::new(198, 51, 100, id);
        let address = ElasticAddress { name: String::new(), public, association };
        world.addresses.insert(AllocationId(id.into()), address);
    }
}

/// Returns an address outside of all clouds that the internet carries.
fn outside(dice: &mut Dice, is_v4: bool) -> IpAddr {
    let host = dice.small(3);
    if is_v4 {
        Ipv4Addr::new(8, 8, 8, host).into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()).into()
    }
}

/// Returns a packet, usually between addresses that exist.
pub(crate) fn packet(dice: &mut Dice, world: &World) -> (Origin, Packet) {
    let enis: Vec<&Eni> = world.enis.values().collect();
    let id = dice.below(enis.len() as u64);
    let origin = if dice.one_in(6) { Origin::Internet } else { Origin::Eni(EniId(id)) };
    let is_v4 = !dice.one_in(3);
    let of = |eni: &Eni| if is_v4 { IpAddr::V4(eni.ipv4[0]) } else { IpAddr::V6(eni.ipv6[0]) };
    let source = match origin {
        _ if dice.one_in(8) => address(dice),
        Origin::Internet => outside(dice, is_v4),
        Origin::Eni(id) => of(&world.enis[&id]),
    };
    let destination = match origin {
        Origin::Internet if is_v4 => Ipv4Addr::new(198, 51, 100, dice.small(9)).into(),
        // Gateways to the internet refuse most other packets.
        Origin::Eni(_) if dice.one_in(4) => outside(dice, is_v4),
        _ if dice.one_in(3) => {
            let at = address(dice);
            if at.is_ipv4() == is_v4 || dice.one_in(4) { at } else { of(dice.pick(&enis)) }
        }
        _ if dice.one_in(2) => of(dice.pick(&enis)),
        // The address belongs to the sender's cloud, which has six interfaces.
        _ => of(enis[usize::try_from(id / 6 * 6 + dice.below(6)).unwrap()]),
    };
    let (from, to) = (40_000, dice.pick(&[22, 80, 443, 8080, 0, u16::MAX]));
    let inner = match dice.below(9) {
        0..4 => Inner::Tcp(from, to),
        4 | 5 => Inner::Udp(from, to),
        6 => Inner::Icmp(dice.pick(&[0, 3, 8, 128, 129]), dice.pick(&[0, 4])),
        _ => Inner::Other(dice.pick(&[1, 6, 17, 47, 50, 58])),
    };
    (origin, Packet { source, destination, inner })
}
