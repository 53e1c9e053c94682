//! Creates a small cloud from the bytes of the input, and flows in it: two VPCs that may be peered,
//! three subnets, four interfaces on two hosts, an internet gateway, and a NAT gateway.

use std::net::{IpAddr, Ipv4Addr};

use srd_vpc::id::*;
use srd_vpc::judge::Origin;
use srd_vpc::object::*;
use srd_vpc::packet::{Inner, Packet};

pub(super) const HOSTS: [&str; 2] = ["here", "there"];
pub(super) const NAT: NatGatewayId = NatGatewayId(1);
pub(super) const NAT_PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 5);
pub(super) const NAT_PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 5);
const WEB_PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
pub(super) const DOOR: InternetGatewayId = InternetGatewayId(1);
/// The interfaces by index: index of the subnet, and octets of the IPv4 address.
const ENIS: [(u64, [u8; 4]); 4] =
    [(0, [10, 0, 0, 10]), (0, [10, 0, 0, 11]), (1, [10, 0, 1, 10]), (2, [10, 1, 0, 10])];

/// The rest of the input, which is read byte by byte; zeros after its end.
pub(crate) struct Tape<'a>(pub(crate) &'a [u8]);

impl Tape<'_> {
    fn below(&mut self, n: u8) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first % n
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        let n = u8::try_from(all.len()).expect("few");
        all[usize::from(self.below(n))]
    }

    pub(crate) fn one_in(&mut self, n: u8) -> bool {
        self.below(n) == n - 1
    }
}

fn traffic(tape: &mut Tape<'_>) -> Traffic {
    tape.pick(&[
        Traffic::All,
        Traffic::Tcp(443, 443),
        Traffic::Tcp(0, u16::MAX),
        Traffic::Udp(53, 5201),
        Traffic::Udp(0, u16::MAX),
        Traffic::Icmp(None, None),
        Traffic::Icmp(Some(8), None),
        Traffic::Tcp(32_768, 60_999),
        Traffic::Udp(1024, u16::MAX),
    ])
}

fn block(tape: &mut Tape<'_>) -> ipnet::IpNet {
    let text = tape.pick(&[
        "0.0.0.0/0",
        "10.0.0.0/16",
        "10.1.0.0/16",
        "10.0.1.5/32",
        "10.0.0.0/24",
        "203.0.113.1/32",
    ]);
    text.parse().expect("a block")
}

fn acl(tape: &mut Tape<'_>, vpc: VpcId) -> Acl {
    let mut entries = Vec::new();
    for number in 1..=tape.below(4) {
        let (egress, allow) = (tape.one_in(2), !tape.one_in(4));
        let (traffic, block) = (traffic(tape), block(tape));
        entries.push(AclEntry { number: number.into(), egress, allow, traffic, block });
    }
    let last = if tape.one_in(4) { traffic(tape) } else { Traffic::All };
    let block = "0.0.0.0/0".parse().expect("a block");
    for egress in [false, true] {
        let traffic = if egress { Traffic::All } else { last };
        entries.push(AclEntry { number: 100, egress, allow: true, traffic, block });
    }
    Acl { name: String::new(), vpc, entries }
}

fn group(tape: &mut Tape<'_>, vpc: VpcId, id: u64) -> Group {
    let mut rules = Vec::new();
    for number in 0..tape.below(4) {
        let egress = tape.one_in(4);
        let traffic = traffic(tape);
        let peer = match tape.below(4) {
            0 => RulePeer::Group(GroupId(u64::from(tape.below(4)))),
            _ => RulePeer::Block(block(tape)),
        };
        let id = GroupRuleId(id * 10 + u64::from(number));
        rules.push(GroupRule { id, egress, traffic, peer, description: String::new() });
    }
    // Most interfaces may send everything, and half of them accept everything. Otherwise few
    // packets would arrive.
    for (number, egress, is_there) in [(9, true, !tape.one_in(4)), (8, false, tape.one_in(2))] {
        if is_there {
            let peer = RulePeer::Block("0.0.0.0/0".parse().expect("a block"));
            let (id, traffic) = (GroupRuleId(id * 10 + number), Traffic::All);
            rules.push(GroupRule { id, egress, traffic, peer, description: String::new() });
        }
    }
    Group { name: String::new(), description: String::new(), vpc, rules }
}

fn table(tape: &mut Tape<'_>, vpc: VpcId) -> RouteTable {
    let mut routes = Vec::new();
    let mut add = |to: &str, target| {
        let destination = Destination::Block(to.parse().expect("a block"));
        routes.push(Route { destination, target, propagated: false });
    };
    if !tape.one_in(4) {
        let door = [Target::InternetGateway(DOOR), Target::NatGateway(NAT)];
        add("0.0.0.0/0", tape.pick(&door));
    }
    for _ in 0..tape.below(3) {
        let to =
            tape.pick(&["0.0.0.0/0", "10.1.0.0/16", "10.0.0.0/16", "10.0.1.0/24", "8.8.8.0/24"]);
        let target = tape.pick(&[
            Target::InternetGateway(DOOR),
            Target::NatGateway(NAT),
            Target::Peering(PeeringId(1)),
            Target::Blackhole,
        ]);
        add(to, target);
    }
    RouteTable { name: String::new(), vpc, routes }
}

pub(super) fn world(tape: &mut Tape<'_>) -> World {
    let mut world = World { internet_private: tape.one_in(8), ..World::default() };
    let name = String::new;
    for vpc in [0, 1_u8] {
        let block = ipnet::Ipv4Net::new([10, vpc, 0, 0].into(), 16).expect("a block");
        let id = u64::from(vpc);
        let cloud = Vpc {
            name: name(),
            ipv4: vec![block],
            ipv6: Vec::new(),
            main_route_table: RouteTableId(id * 2),
            default_acl: AclId(id * 2),
            default_group: GroupId(0),
            dhcp_options: None,
            dns_support: true,
            dns_hostnames: false,
        };
        world.vpcs.insert(VpcId(id), cloud);
    }
    let peering =
        Peering { name: name(), requester: VpcId(0), accepter: VpcId(1), active: !tape.one_in(6) };
    world.peerings.insert(PeeringId(1), peering);
    let vpc = (!tape.one_in(8)).then_some(VpcId(0));
    world.internet_gateways.insert(DOOR, InternetGateway { name: name(), vpc });
    let address = (!tape.one_in(3)).then_some(AllocationId(5));
    let nat = NatGateway { name: name(), subnet: SubnetId(1), private: NAT_PRIVATE, address };
    world.nat_gateways.insert(NAT, nat);
    for (id, [third, vpc]) in (0..).zip([[0, 0_u8], [1, 0], [0, 1]]) {
        let of = VpcId(vpc.into());
        world.acls.insert(AclId(id), acl(tape, of));
        world.route_tables.insert(RouteTableId(id), table(tape, of));
        let subnet = Subnet {
            name: name(),
            vpc: of,
            zone: "a".into(),
            ipv4: ipnet::Ipv4Net::new([10, vpc, third, 0].into(), 24).expect("a block"),
            ipv6: None,
            route_table: Some(RouteTableId(id)),
            acl: AclId(id),
            map_public_ip: false,
        };
        world.subnets.insert(SubnetId(id), subnet);
    }
    for (id, (subnet, address)) in (0..).zip(ENIS) {
        let vpc = world.subnets[&SubnetId(subnet)].vpc;
        world.groups.insert(GroupId(id), group(tape, vpc, id));
        let instance = Instance {
            name: name(),
            instance_type: "c7i.large".into(),
            zone: "a".into(),
            placement: None,
            host: Some(tape.pick(&HOSTS).into()),
            pod: None,
        };
        world.instances.insert(InstanceId(id), instance);
        let attachment = Attachment {
            id: AttachmentId(id),
            instance: InstanceId(id),
            device_index: 0,
            express: ExpressSpec::default(),
        };
        let eni = Eni {
            name: name(),
            subnet: SubnetId(subnet),
            mac: [2; 6],
            ipv4: vec![address.into()],
            ipv6: Vec::new(),
            ipv4_prefixes: Vec::new(),
            ipv6_prefixes: Vec::new(),
            groups: vec![GroupId(id)],
            source_dest_check: true,
            attachment: Some(attachment),
            tracking: TrackingSpec::default(),
        };
        world.enis.insert(EniId(id), eni);
    }
    let web = Some((EniId(2), Ipv4Addr::new(10, 0, 1, 10)));
    for (id, public, association) in [(5, NAT_PUBLIC, None), (10, WEB_PUBLIC, web)] {
        let address = ElasticAddress { name: name(), public, association };
        world.addresses.insert(AllocationId(id), address);
    }
    world
}

/// Creates a flow. Each flow has different ports, or a different identifier of echoes.
pub(super) fn flow(tape: &mut Tape<'_>, world: &World, number: u16) -> super::Flow {
    let from = tape.below(5);
    let origin = if from == 4 { Origin::Internet } else { Origin::Eni(EniId(from.into())) };
    let source = match origin {
        Origin::Eni(id) => IpAddr::V4(world.enis[&id].ipv4[0]),
        Origin::Internet => IpAddr::from(tape.pick(&[[203, 0, 113, 1], [8, 8, 8, 8]])),
    };
    let destination = IpAddr::from(tape.pick(&[
        [10, 1, 0, 10],
        [10, 0, 1, 10],
        [10, 0, 0, 10],
        [10, 0, 0, 11],
        [8, 8, 8, 8],
        [203, 0, 113, 1],
        [10, 0, 1, 5],
        [198, 51, 100, 10],
        [192, 168, 1, 1],
        [10, 0, 0, 77],
        [10, 2, 0, 1],
        [169, 254, 169, 254],
    ]));
    let port = tape.pick(&[30_000, 40_000, 2000, 62_000]) + number;
    let inner = match tape.below(4) {
        0 | 1 => Inner::Tcp(port, tape.pick(&[443, 80])),
        2 => Inner::Udp(port, tape.pick(&[53, 5201, 9])),
        _ => Inner::Icmp(8, 0),
    };
    (origin, Packet { source, destination, inner }, tape.one_in(4))
}
