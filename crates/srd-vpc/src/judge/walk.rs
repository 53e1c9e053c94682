//! Order of the evaluation of a packet.

use super::acl;
use super::clouds::{cloud_towards, has_address, has_block, lead_elsewhere};
use super::groups::{self, Direction, Tracking};
use super::route;
use super::step::{
    Exit, Judgement, MissingObject, Origin, Reach, Reason, Service, Step, Translator, Verdict,
};
use crate::id::*;
use crate::object::{Eni, Strategy, Target, Vpc, World};
use crate::packet::{Inner, Packet};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Largest number of subnets that route one packet: the sender's subnet, and the subnet of a NAT
/// gateway.
const ROUTES_MAX: usize = 2;

/// Evaluates a packet that begins a flow.
pub fn judge(world: &World, origin: Origin, packet: &Packet) -> Judgement {
    judge_flow(world, origin, packet, &|_, _, _| false)
}

/// A function that returns whether an interface tracks the connection of a packet in a direction.
/// Its argument is the packet with the addresses that it has at the interface.
pub type Remembers<'a> = &'a dyn Fn(EniId, Direction, &Packet) -> bool;

/// A connection that a NAT gateway tracks. Its answers are forwarded to the source of the
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translated {
    /// The NAT gateway that tracks the connection.
    pub nat: NatGatewayId,
    /// Source address of the connection.
    pub source: Ipv4Addr,
    /// Source port of the connection, if its protocol has ports.
    pub port: Option<u16>,
}

/// Evaluates a packet. `remembers` returns whether an interface tracks the connection of the
/// packet; the security groups of such an interface are not evaluated.
pub fn judge_flow(
    world: &World,
    origin: Origin,
    packet: &Packet,
    remembers: Remembers<'_>,
) -> Judgement {
    Walk::new(world, packet, remembers).run(origin)
}

/// Evaluates a packet as [`judge_flow`] does, except that the packet opens no connection.
/// `translated`: the connection to which the packet belongs, if a NAT gateway tracks it.
pub fn judge_answer(
    world: &World,
    origin: Origin,
    packet: &Packet,
    remembers: Remembers<'_>,
    translated: Option<Translated>,
) -> Judgement {
    let walk = Walk { translated, opens: false, ..Walk::new(world, packet, remembers) };
    walk.run(origin)
}

struct Walk<'a> {
    world: &'a World,
    packet: Packet,
    steps: Vec<Step>,
    remembers: Remembers<'a>,
    translated: Option<Translated>,
    /// Whether the packet may open a connection.
    opens: bool,
    reach: Option<Reach>,
    /// Cloud of the interface that sends the packet; `None` if the packet comes from the internet.
    from: Option<VpcId>,
}

type Outcome = Result<Verdict, Reason>;

impl<'a> Walk<'a> {
    fn new(world: &'a World, packet: &Packet, remembers: Remembers<'a>) -> Self {
        let (packet, steps) = (*packet, Vec::new());
        let (translated, opens, reach, from) = (None, true, None, None);
        Self { world, packet, steps, remembers, translated, opens, reach, from }
    }

    fn run(mut self, origin: Origin) -> Judgement {
        let verdict = match self.begin(origin) {
            Ok(verdict) => verdict,
            Err(reason) => Verdict::Dropped(reason),
        };
        let Self { steps, packet, reach, .. } = self;
        let reach = reach.filter(|_| !matches!(verdict, Verdict::Dropped(_)));
        Judgement { steps, verdict, packet, reach }
    }

    fn begin(&mut self, origin: Origin) -> Outcome {
        if self.packet.source.is_ipv4() != self.packet.destination.is_ipv4() {
            return Err(Reason::Families);
        }
        match origin {
            // V1: Source check
            Origin::Eni(_) if self.packet.source == self.packet.destination => {
                Err(Reason::ToItself)
            }
            Origin::Eni(id) => self.sent_by(id),
            Origin::Internet => match self.translated {
                Some(Translated { nat, .. }) => self.arriving_for_nat(nat),
                None => self.arriving(),
            },
        }
    }

    fn sent_by(&mut self, id: EniId) -> Outcome {
        let world = self.world;
        let eni = world.enis.get(&id).ok_or(Reason::Missing(MissingObject::Eni))?;
        let own = !eni.source_dest_check || groups::has_address(eni, self.packet.source);
        self.steps.push(Step::Source { eni: id, own });
        if !own {
            return Err(Reason::NotItsAddress);
        }
        let subnet =
            world.subnets.get(&eni.subnet).ok_or(Reason::Missing(MissingObject::Subnet))?;
        self.from = Some(subnet.vpc);
        let service = service_at(world, subnet.vpc, self.packet.destination);
        // Security groups and network ACLs do not apply to packets for these services (Amazon VPC
        // User Guide, *Security*).
        if let Some(service) = service {
            return Ok(Verdict::Served(service));
        }
        let automatic = self.is_always_tracked(eni);
        self.ask_groups(id, eni, Direction::Egress, automatic)?;
        let nat = groups::nat_at(world, subnet.vpc, self.packet.destination);
        if let Some((nat, _)) = nat.filter(|(_, gateway)| gateway.subnet == eni.subnet) {
            self.steps.push(Step::SameSubnet(eni.subnet));
            return self.at_nat(None, nat, ROUTES_MAX - 1);
        }
        let near = groups::eni_at(world, subnet.vpc, self.packet.destination);
        if let Some((to, other)) = near.filter(|(_, other)| other.subnet == eni.subnet) {
            self.steps.push(Step::SameSubnet(eni.subnet));
            self.reach = Some(self.between(eni, other));
            return self.arrive(to, other);
        }
        self.leave(Some(eni), eni.subnet, ROUTES_MAX)
    }

    /// Routes a packet out of a subnet. `eni`: the interface that has sent the packet; `None` if a
    /// NAT gateway of the subnet has sent it.
    fn leave(&mut self, eni: Option<&Eni>, from: SubnetId, routes_left: usize) -> Outcome {
        let routes_left = routes_left.checked_sub(1).ok_or(Reason::Circle)?;
        self.ask_acl(from, Direction::Egress)?;
        let chosen = route::choose(self.world, from, self.packet.destination);
        let chosen = chosen.ok_or(Reason::Missing(MissingObject::Subnet))?;
        self.steps.push(Step::Route { subnet: from, table: chosen.table, route: chosen.route });
        let (_, target) = chosen.route.ok_or(Reason::NoRoute)?;
        let vpc = self.vpc_of(from)?;
        match target {
            Target::Blackhole => Err(Reason::Blackhole),
            Target::Local => self.towards(eni, from, vpc, vpc, routes_left),
            Target::Peering(id) => {
                let other = self.peer_of(vpc, id)?;
                self.towards(eni, from, vpc, other, routes_left)
            }
            Target::InternetGateway(id) => self.out_by_gateway(vpc, id),
            Target::EgressOnlyGateway(id) => {
                let gateway = self.world.egress_only_gateways.get(&id);
                let gateway = gateway.ok_or(Reason::Missing(MissingObject::Gateway))?;
                if self.packet.destination.is_ipv4() {
                    return Err(Reason::WrongFamily);
                }
                if gateway.vpc != vpc {
                    return Err(Reason::Detached);
                }
                check_carried(self.world.internet_private, self.packet.destination)?;
                self.reach = Some(Reach::Outside);
                Ok(Verdict::Left(Exit::EgressOnlyGateway(id)))
            }
            Target::Endpoint(id) => {
                let endpoint = self.world.endpoints.get(&id);
                let endpoint = endpoint.ok_or(Reason::Missing(MissingObject::Gateway))?;
                if endpoint.vpc != vpc {
                    return Err(Reason::Detached);
                }
                self.reach = Some(Reach::Outside);
                Ok(Verdict::Left(Exit::Endpoint(id)))
            }
            Target::NatGateway(id) => self.by_nat(from, vpc, id, routes_left),
            Target::Eni(id) => {
                let middlebox = self.world.enis.get(&id).ok_or(Reason::Blackhole)?;
                if self.vpc_of(middlebox.subnet)? != vpc {
                    return Err(Reason::Detached);
                }
                let takes = !middlebox.source_dest_check
                    || groups::has_address(middlebox, self.packet.destination);
                self.steps.push(Step::Middlebox { eni: id, takes });
                if !takes {
                    return Err(Reason::ChecksDestination);
                }
                self.reach = Some(Reach::Vpc);
                self.enter(from, id, middlebox)
            }
        }
    }

    /// Delivers the packet to the interface that has the destination, in this cloud or in a peered
    /// cloud.
    fn towards(
        &mut self,
        eni: Option<&Eni>,
        from: SubnetId,
        own: VpcId,
        vpc: VpcId,
        routes_left: usize,
    ) -> Outcome {
        let address = self.packet.destination;
        let source = self.packet.source;
        let has = |vpc: VpcId, address: IpAddr| has_block(self.world, vpc, address);
        if has(vpc, source) && !has(own, source) {
            return Err(Reason::NoTransit); // V1
        }
        if let Some((nat, _)) = groups::nat_at(self.world, vpc, address) {
            return self.at_nat(Some(from), nat, routes_left);
        }
        let found = groups::eni_at(self.world, vpc, address);
        let id = found.map(|(id, _)| id);
        self.steps.push(Step::Mapping { vpc, address, eni: id });
        let Some((id, to)) = found else {
            let of_peer = vpc == own || has_block(self.world, vpc, address);
            return Err(if of_peer { Reason::NoInterface } else { Reason::NoTransit });
        };
        self.reach = Some(match eni {
            _ if vpc != own => Reach::Peering,
            Some(eni) => self.between(eni, to),
            None => Reach::Vpc,
        });
        self.enter(from, id, to)
    }

    /// Delivers the packet to an interface. The access control list of the interface's subnet is
    /// evaluated unless the packet comes from this subnet.
    fn enter(&mut self, from: SubnetId, id: EniId, eni: &Eni) -> Outcome {
        if eni.subnet != from {
            self.ask_acl(eni.subnet, Direction::Ingress)?;
        }
        self.arrive(id, eni)
    }

    fn arrive(&mut self, id: EniId, eni: &Eni) -> Outcome {
        self.ask_groups(id, eni, Direction::Ingress, false)?;
        Ok(Verdict::Delivered(id))
    }

    fn out_by_gateway(&mut self, vpc: VpcId, id: InternetGatewayId) -> Outcome {
        let gateway = self.world.internet_gateways.get(&id);
        let gateway = gateway.ok_or(Reason::Missing(MissingObject::Gateway))?;
        if gateway.vpc != Some(vpc) {
            return Err(Reason::Detached);
        }
        check_carried(self.world.internet_private, self.packet.destination)?;
        if let IpAddr::V4(from) = self.packet.source {
            let to = self.public_of(vpc, from)?;
            let by = Translator::InternetGateway(id);
            self.steps.push(Step::Source4 { by, from, to });
            self.packet.source = IpAddr::V4(to);
        }
        self.reach = Some(Reach::Outside);
        Ok(Verdict::Left(Exit::InternetGateway(id)))
    }

    fn by_nat(
        &mut self,
        from: SubnetId,
        vpc: VpcId,
        id: NatGatewayId,
        routes_left: usize,
    ) -> Outcome {
        let gateway = self.world.nat_gateways.get(&id);
        let gateway = gateway.ok_or(Reason::Missing(MissingObject::Gateway))?;
        let IpAddr::V4(source) = self.packet.source else { return Err(Reason::WrongFamily) };
        if self.vpc_of(gateway.subnet)? != vpc {
            return Err(Reason::Detached);
        }
        if gateway.subnet == from {
            // The gateway itself sent the packet, or the route of the subnet leads to a gateway in
            // the subnet.
            return Err(Reason::Circle);
        }
        self.ask_acl(gateway.subnet, Direction::Ingress)?;
        if !self.opens && matches!(self.packet.inner, Inner::Tcp(..)) {
            return Err(Reason::OpensNoConnection);
        }
        let (by, to) = (Translator::NatGateway(id), gateway.private);
        self.steps.push(Step::Source4 { by, from: source, to });
        self.packet.source = IpAddr::V4(to);
        let other = groups::nat_at(self.world, vpc, self.packet.destination);
        if other.is_some_and(|(_, other)| other.subnet == gateway.subnet) {
            return Err(Reason::OutwardsOnly);
        }
        let near = groups::eni_at(self.world, vpc, self.packet.destination);
        if let Some((id, eni)) = near.filter(|(_, eni)| eni.subnet == gateway.subnet) {
            self.steps.push(Step::SameSubnet(gateway.subnet));
            self.reach = Some(Reach::Vpc);
            return self.arrive(id, eni);
        }
        self.leave(None, gateway.subnet, routes_left)
    }

    /// Evaluates a packet to the address of a NAT gateway. An answer is forwarded to the source of
    /// its connection; any other packet is refused. `from`: the subnet that the packet comes from,
    /// if it is not the gateway's subnet.
    fn at_nat(&mut self, from: Option<SubnetId>, id: NatGatewayId, routes_left: usize) -> Outcome {
        let translated = self.translated.take().filter(|of| of.nat == id);
        let Translated { source, port, .. } = translated.ok_or(Reason::OutwardsOnly)?;
        let gateway =
            self.world.nat_gateways.get(&id).ok_or(Reason::Missing(MissingObject::Gateway))?;
        if from.is_some_and(|from| from != gateway.subnet) {
            self.ask_acl(gateway.subnet, Direction::Ingress)?;
        }
        let (by, from) = (Translator::NatGateway(id), gateway.private);
        self.steps.push(Step::Destination4 { by, from, to: source });
        self.packet.destination = IpAddr::V4(source);
        self.packet = port.map_or(self.packet, |port| self.packet.to_port(port));
        let vpc = self.vpc_of(gateway.subnet)?;
        let near = groups::eni_at(self.world, vpc, self.packet.destination);
        if let Some((id, eni)) = near.filter(|(_, eni)| eni.subnet == gateway.subnet) {
            self.steps.push(Step::SameSubnet(gateway.subnet));
            return self.arrive(id, eni);
        }
        self.leave(None, gateway.subnet, routes_left)
    }

    /// Evaluates an answer from outside to the address of a NAT gateway.
    fn arriving_for_nat(&mut self, id: NatGatewayId) -> Outcome {
        let gateway =
            self.world.nat_gateways.get(&id).ok_or(Reason::Missing(MissingObject::Gateway))?;
        let vpc = self.vpc_of(gateway.subnet)?;
        if let (IpAddr::V4(from), to) = (self.packet.destination, gateway.private)
            && from != to
        {
            let by = Translator::InternetGateway(self.gateway_of(vpc)?);
            self.steps.push(Step::Destination4 { by, from, to });
            self.packet.destination = IpAddr::V4(to);
        }
        self.ask_acl(gateway.subnet, Direction::Ingress)?;
        let outcome = self.at_nat(None, id, ROUTES_MAX - 1);
        self.reach = Some(Reach::Outside);
        outcome
    }

    /// Evaluates a packet from the internet, to an elastic address or to the IPv6 address of an
    /// interface.
    fn arriving(&mut self) -> Outcome {
        let world = self.world;
        if !is_from_outside(world, self.packet.source) {
            return Err(Reason::NotFromOutside);
        }
        let (id, vpc) = match self.packet.destination {
            IpAddr::V4(public) => {
                let mut all = world.addresses.values();
                let address = all.find(|a| a.public == public).ok_or(Reason::NoInterface)?;
                let (id, to) = address.association.ok_or(Reason::NoInterface)?;
                let eni = world.enis.get(&id).ok_or(Reason::Missing(MissingObject::Eni))?;
                if !groups::has_address(eni, to.into()) {
                    return Err(Reason::NoInterface);
                }
                let vpc = self.vpc_of(eni.subnet)?;
                let by = Translator::InternetGateway(self.gateway_of(vpc)?);
                self.steps.push(Step::Destination4 { by, from: public, to });
                self.packet.destination = IpAddr::V4(to);
                (id, vpc)
            }
            IpAddr::V6(address) => {
                let mut vpcs = world.vpcs.iter();
                let here = vpcs.find(|(_, vpc)| vpc.ipv6.iter().any(|b| b.contains(&address)));
                let (vpc, _) = here.ok_or(Reason::NoInterface)?;
                let found = groups::eni_at(world, *vpc, address.into());
                let (id, eni) = found.ok_or(Reason::NoInterface)?;
                self.check_way_in(id, eni)?;
                (id, *vpc)
            }
        };
        let eni = world.enis.get(&id).ok_or(Reason::Missing(MissingObject::Eni))?;
        let address = self.packet.destination;
        self.steps.push(Step::Mapping { vpc, address, eni: Some(id) });
        self.reach = Some(Reach::Outside);
        self.ask_acl(eni.subnet, Direction::Ingress)?;
        self.arrive(id, eni)
    }

    /// Checks that an IPv6 packet from outside may enter through an internet gateway. An
    /// egress-only gateway admits answers only.
    fn check_way_in(&self, id: EniId, eni: &Eni) -> Result<(), Reason> {
        if (self.remembers)(id, Direction::Ingress, &self.packet) {
            return Ok(());
        }
        let vpc = self.vpc_of(eni.subnet)?;
        let back = route::choose(self.world, eni.subnet, self.packet.source);
        let back = back.and_then(|chosen| chosen.route).map(|(_, target)| target);
        if matches!(back, Some(Target::EgressOnlyGateway(_))) {
            return Err(Reason::OutwardsOnly);
        }
        self.gateway_of(vpc).map(|_| ())
    }

    fn gateway_of(&self, vpc: VpcId) -> Result<InternetGatewayId, Reason> {
        let mut all = self.world.internet_gateways.iter();
        let attached = all.find(|(_, gateway)| gateway.vpc == Some(vpc));
        attached.map(|(id, _)| *id).ok_or(Reason::Detached)
    }

    /// Returns the public address for a private address: the elastic address of an interface or of
    /// a NAT gateway.
    fn public_of(&self, vpc: VpcId, private: Ipv4Addr) -> Result<Ipv4Addr, Reason> {
        let world = self.world;
        let in_vpc = |eni: EniId| {
            let eni = world.enis.get(&eni)?;
            Some(self.vpc_of(eni.subnet).ok()? == vpc)
        };
        let elastic = world.addresses.values().find(|address| {
            let of = address.association.filter(|(_, to)| *to == private);
            of.and_then(|(eni, _)| in_vpc(eni)) == Some(true)
        });
        if let Some(address) = elastic {
            return Ok(address.public);
        }
        let mut gateways = world.nat_gateways.values();
        let gateway = gateways.find(|g| g.private == private && self.vpc_of(g.subnet) == Ok(vpc));
        let allocation = gateway.ok_or(Reason::NoPublicAddress)?.address;
        let address = world.addresses.get(&allocation.ok_or(Reason::PrivateNat)?);
        Ok(address.ok_or(Reason::Missing(MissingObject::Gateway))?.public)
    }

    fn peer_of(&self, vpc: VpcId, id: PeeringId) -> Result<VpcId, Reason> {
        let peering =
            self.world.peerings.get(&id).ok_or(Reason::Missing(MissingObject::Gateway))?;
        match [peering.requester, peering.accepter] {
            _ if !peering.active => Err(Reason::NotPeered),
            [own, other] | [other, own] if own == vpc => Ok(other),
            _ => Err(Reason::NotPeered),
        }
    }

    fn vpc_of(&self, subnet: SubnetId) -> Result<VpcId, Reason> {
        let subnet =
            self.world.subnets.get(&subnet).ok_or(Reason::Missing(MissingObject::Subnet))?;
        Ok(subnet.vpc)
    }

    fn between(&self, a: &Eni, b: &Eni) -> Reach {
        let world = self.world;
        let instance = |eni: &Eni| world.instances.get(&eni.attachment.as_ref()?.instance);
        let placement = |eni: &Eni| {
            let id = instance(eni)?.placement?;
            let is_cluster = world.placements.get(&id)?.strategy == Strategy::Cluster;
            is_cluster.then_some(id)
        };
        let zone = |eni: &Eni| world.subnets.get(&eni.subnet).map(|subnet| &subnet.zone);
        if placement(a).is_some() && placement(a) == placement(b) {
            Reach::Cluster
        } else if zone(a) == zone(b) {
            Reach::Zone
        } else {
            Reach::Vpc
        }
    }

    /// Whether the route of the flow leads through a gateway or service whose flows are always
    /// tracked.
    fn is_always_tracked(&self, eni: &Eni) -> bool {
        let chosen = route::choose(self.world, eni.subnet, self.packet.destination);
        match chosen.and_then(|chosen| chosen.route).map(|(_, target)| target) {
            Some(Target::EgressOnlyGateway(_) | Target::NatGateway(_)) => true,
            Some(Target::Endpoint(id)) => {
                self.world.endpoints.get(&id).is_some_and(|endpoint| endpoint.always_tracked)
            }
            _ => false,
        }
    }

    fn ask_groups(
        &mut self,
        id: EniId,
        eni: &Eni,
        direction: Direction,
        automatic: bool,
    ) -> Result<(), Reason> {
        let ingress = direction == Direction::Ingress;
        let source = self.packet.source;
        let is_foreign =
            ingress && self.from.is_some_and(|from| lead_elsewhere(self.world, eni, source, from));
        if !is_foreign && (self.remembers)(id, direction, &self.packet) {
            self.steps.push(Step::Established { eni: id });
            return Ok(());
        }
        let towards = || cloud_towards(self.world, eni.subnet, self.packet.destination);
        let cloud = if ingress { self.from } else { towards() };
        let rule = groups::allowed_by(self.world, eni, direction, &self.packet, cloud);
        let tracking: Option<Tracking> =
            rule.map(|_| groups::tracking(self.world, eni, direction, &self.packet, automatic));
        self.steps.push(Step::Groups { eni: id, direction, rule, tracking });
        match (rule, direction) {
            (Some(_), _) => Ok(()),
            (None, Direction::Egress) => Err(Reason::GroupsOut),
            (None, Direction::Ingress) => Err(Reason::GroupsIn),
        }
    }

    fn ask_acl(&mut self, subnet: SubnetId, direction: Direction) -> Result<(), Reason> {
        let decision = acl::decide(self.world, subnet, direction, &self.packet);
        let decision = decision.ok_or(Reason::Missing(MissingObject::Subnet))?;
        self.steps.push(Step::Acl {
            subnet,
            acl: decision.acl,
            direction,
            packet: self.packet,
            number: decision.number,
            allow: decision.allow,
        });
        match (decision.allow, direction) {
            (true, _) => Ok(()),
            (false, Direction::Egress) => Err(Reason::AclOut),
            (false, Direction::Ingress) => Err(Reason::AclIn),
        }
    }
}

/// Whether a packet from the internet may have this source: the address has to be outside of all
/// clouds, and the internet has to carry it. Otherwise a forged private address could match a rule
/// that names a group.
pub(super) fn is_from_outside(world: &World, source: IpAddr) -> bool {
    let is_of_cloud = world.vpcs.values().any(|vpc| has_address(vpc, source));
    is_carried(world.internet_private, source) && !is_of_cloud
}

/// Returns an error if the internet does not carry packets to this destination.
pub(crate) fn check_carried(private: bool, destination: IpAddr) -> Result<(), Reason> {
    // V19: Addresses outside the internet
    if is_carried(private, destination) { Ok(()) } else { Err(Reason::NotCarried) }
}

/// Whether the internet carries packets from and to an address (RFC 6890). If `private`, it also
/// carries addresses of private networks (RFC 1918, RFC 6598, RFC 4193).
pub(crate) fn is_carried(private: bool, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            let [first, second, ..] = a.octets();
            // Never carried: this network, loopback, link-local, multicast, reserved, and
            // broadcast.
            let nowhere = first == 0 || a.is_loopback() || a.is_link_local() || first >= 224;
            let is_private = a.is_private() || first == 100 && second & 0xc0 == 64;
            !nowhere && (private || !is_private)
        }
        IpAddr::V6(a) => {
            let first = a.segments()[0];
            first & 0xe000 == 0x2000 || private && first & 0xfe00 == 0xfc00
        }
    }
}

/// Returns the service that has this address, if there is one.
fn service_at(world: &World, vpc: VpcId, address: IpAddr) -> Option<Service> {
    let vpc = world.vpcs.get(&vpc)?;
    service(resolver(vpc)?, vpc.dns_support, address)
}

/// Returns the address of a cloud's resolver: the base address of its primary block plus two.
pub(crate) fn resolver(vpc: &Vpc) -> Option<Ipv4Addr> {
    let base = vpc.ipv4.first()?.network();
    Some(Ipv4Addr::from(u32::from(base).wrapping_add(2)))
}

/// Returns the service that has this address, in a cloud with this resolver. `dns`: whether the
/// resolver answers.
pub fn service(resolver: Ipv4Addr, dns: bool, address: IpAddr) -> Option<Service> {
    let ec2 = |last: u16| IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, last));
    let link_local = |last: u8| IpAddr::V4(Ipv4Addr::new(169, 254, 169, last));
    match address {
        _ if dns && [resolver.into(), link_local(253), ec2(0x253)].contains(&address) => {
            Some(Service::Resolver)
        }
        _ if [link_local(254), ec2(0x254)].contains(&address) => Some(Service::Metadata),
        _ if [link_local(123), ec2(0x123)].contains(&address) => Some(Service::Time),
        _ => None,
    }
}
