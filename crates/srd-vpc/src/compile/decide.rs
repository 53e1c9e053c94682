//! Verdicts on packets by one host's tables.

use super::policy::AclRules;
use super::*;
use crate::judge::groups::{Direction, Tracking};
use crate::judge::{Exit, MissingObject, Reach, Reason, Service, route, walk};
use crate::packet::Packet;
use core::net::IpAddr;

/// Largest number of subnets that route one packet: the sender's subnet, and the subnet of a NAT
/// gateway.
const ROUTES_MAX: usize = 2;

/// A packet that is leaving the sender's subnet.
struct RoutedPacket {
    packet: Packet,
    nat: Option<NatGatewayId>,
    routes_left: usize,
}

/// Whether a packet begins a flow or belongs to a tracked connection. Groups are not evaluated
/// again for a flow that they have allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The packet begins a flow.
    New,
    /// The packet belongs to a connection that the interface tracks.
    Established,
}

/// Verdict on a packet that an interface of the host sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressVerdict<'a> {
    /// Next hop of the packet.
    pub next: Next<'a>,
    /// The packet, with the addresses that gateways have rewritten.
    pub packet: Packet,
    /// The NAT gateway that the packet passes, if there is one.
    pub nat: Option<NatGatewayId>,
    /// Result of connection tracking by the sender's security groups; `None` if the groups were not
    /// evaluated.
    pub tracking: Option<Tracking>,
}

/// A packet from the internet to an interface of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The interface that receives the packet.
    pub eni: EniId,
    /// The packet, with the interface's private address as its destination.
    pub packet: Packet,
    /// Whether the packet may begin a flow. If not, it may still be an answer of an existing flow.
    pub begins: Result<(), Reason>,
}

/// Next hop of a packet that the rules of the sender allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<'a> {
    /// A service that the network itself provides.
    Served(Service),
    /// The packet leaves all clouds through this gateway or endpoint.
    Left(Exit),
    /// An interface, whose host evaluates the packet with [`Rules::receive`].
    To {
        /// Location of the interface.
        place: &'a Location,
        /// Whether the packet enters the interface's subnet from outside, so that the subnet's
        /// access control list is evaluated.
        crosses: bool,
        /// Distance between the two interfaces.
        reach: Reach,
        /// Whether source and destination belong to the two interfaces themselves: neither
        /// interface is a middlebox that forwards packets of other hosts.
        direct: bool,
    },
    /// A NAT gateway of a cloud that can be reached. If the packet belongs to a connection of the
    /// gateway, it is an answer; otherwise it is refused ([`Reason::OutwardsOnly`]).
    Nat(NatGatewayId),
    /// No decision yet: the tables lack the location of an interface. The packet waits for the
    /// answer, and is then evaluated again.
    Ask(Question),
}

/// Reason why a packet's sender could not be determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSender {
    /// The interface is not the sender: it does not have the source address and is no middlebox, or
    /// its cloud is neither the receiver's cloud nor peered with it.
    NotIts,
    /// The tables do not contain the interface yet. The answer to this question supplies it.
    Ask(Question),
}

/// The interface that has sent a packet: its location and its cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderPlace<'a> {
    /// Location of the interface.
    pub place: &'a Location,
    /// Cloud of the interface.
    pub vpc: VpcId,
}

/// Result of an address look-up.
enum At<'a> {
    Here(&'a Location),
    Nobody,
    Unknown(Question),
}

impl Rules {
    /// Returns the verdict on a packet that an interface of the host sends.
    pub fn send(
        &self,
        eni: EniId,
        packet: &Packet,
        flow: Flow,
    ) -> Result<EgressVerdict<'_>, Reason> {
        let packet = *packet;
        same_family(&packet)?;
        if packet.source == packet.destination {
            return Err(Reason::ToItself); // V1
        }
        let port = self.ports.get(&eni).ok_or(Reason::Missing(MissingObject::Eni))?;
        if port.source_dest_check && !port.own.contains(packet.source) {
            return Err(Reason::NotItsAddress);
        }
        let subnet = self.subnet(port.subnet)?;
        let to = packet.destination;
        let services = subnet.services;
        let service = services.and_then(|(resolver, dns)| walk::service(resolver, dns, to));
        if let Some(service) = service {
            return Ok(EgressVerdict {
                next: Next::Served(service),
                packet,
                nat: None,
                tracking: None,
            });
        }
        let mut tracking = None;
        if flow == Flow::New {
            let automatic = self.is_always_tracked(subnet, to);
            let cloud = || self.cloud_towards(port.subnet, to);
            let egress = Direction::Egress;
            let allowed = port.policy.ask(&self.members, egress, &packet, cloud, automatic);
            tracking = Some(allowed.ok_or(Reason::GroupsOut)?);
        }

        let mut way = RoutedPacket { packet, nat: None, routes_left: ROUTES_MAX };
        if let Some((nat, of)) = self.nat_at(subnet.vpc, to)
            && of == port.subnet
        {
            return Ok(EgressVerdict { next: Next::Nat(nat), packet, nat: None, tracking });
        }
        let mut next = match self.near(port.subnet, subnet, to) {
            At::Here(place) => {
                let reach = port.place.reach(place);
                Next::To { place, crosses: false, reach, direct: true }
            }
            At::Nobody => self.leave(Some(&port.place), port.subnet, &mut way)?,
            At::Unknown(question) => Next::Ask(question),
        };
        if let Next::To { direct, .. } = &mut next {
            *direct &= port.source_dest_check || port.own.contains(packet.source);
        }
        Ok(EgressVerdict { next, packet: way.packet, nat: way.nat, tracking })
    }

    /// Whether the route of the flow leads through a gateway or service whose flows are always
    /// tracked.
    fn is_always_tracked(&self, subnet: &SubnetRules, to: IpAddr) -> bool {
        match subnet.route(to) {
            Some(Target::EgressOnlyGateway(_) | Target::NatGateway(_)) => true,
            Some(Target::Endpoint(id)) => self.gateways.endpoints.get(&id).is_some_and(|e| e.1),
            _ => false,
        }
    }

    /// Returns how the receiving interface tracks the flow of a packet, or the reason why the
    /// packet is dropped. `from`: the cloud of the interface that sent the packet; `None` if no
    /// interface of a cloud sent it. `crosses`: whether the packet comes from outside of the
    /// interface's subnet. For an established flow, security groups are not evaluated and `None` is
    /// returned.
    pub fn receive(
        &self,
        eni: EniId,
        packet: &Packet,
        from: Option<VpcId>,
        crosses: bool,
        flow: Flow,
    ) -> Result<Option<Tracking>, Reason> {
        let port = self.ports.get(&eni).ok_or(Reason::Missing(MissingObject::Eni))?;
        if port.source_dest_check && !port.own.contains(packet.destination) {
            return Err(Reason::ChecksDestination); // V1
        }
        if crosses {
            self.ask_acl(port.subnet, Direction::Ingress, packet)?;
        }
        if flow == Flow::Established {
            return Ok(None);
        }
        let ingress = Direction::Ingress;
        let tracking = port.policy.ask(&self.members, ingress, packet, || from, false);
        tracking.ok_or(Reason::GroupsIn).map(Some)
    }

    /// Checks that the interface `from` may send a packet with this source address to the interface
    /// `to` of this host. Returns the location and the cloud of `from`.
    pub fn sender(
        &self,
        to: EniId,
        from: EniId,
        source: IpAddr,
    ) -> Result<SenderPlace<'_>, NoSender> {
        let port = self.ports.get(&to).ok_or(NoSender::NotIts)?;
        let own = self.subnet(port.subnet).map_err(|_| NoSender::NotIts)?.vpc;
        let reaches = |vpc: VpcId| vpc == own || self.peered.contains(&(own, vpc));
        let has = |vpc: VpcId| self.clouds.get(&vpc).is_some_and(|of| of.contains(source));
        let forwards = |vpc: VpcId| reaches(vpc) && (!has(own) || has(vpc)); // V1
        if self.asks && !self.ports.contains_key(&from) {
            let question = Question::Interface(from);
            let answer = self.known.ask(question).ok_or(NoSender::Ask(question))?;
            let Answer::Interface(_, Some(of)) = answer else { return Err(NoSender::NotIts) };
            let vpc = of.vpc.filter(|vpc| {
                reaches(*vpc) && of.own.contains(source) || !of.source_dest_check && forwards(*vpc)
            });
            let place = &of.place;
            return vpc.map(|vpc| SenderPlace { place, vpc }).ok_or(NoSender::NotIts);
        }
        let mut tables = self.mapping.iter().filter(|(vpc, _)| reaches(**vpc));
        let having = tables.find_map(|(vpc, table)| {
            let place = table.at(source).find(|place| place.eni == from)?;
            Some(SenderPlace { place, vpc: *vpc })
        });
        let middlebox = || {
            let (vpc, place) = self.unchecked.get(&from).filter(|(vpc, _)| forwards(*vpc))?;
            Some(SenderPlace { place, vpc: *vpc })
        };
        having.or_else(middlebox).ok_or(NoSender::NotIts)
    }

    /// Whether a packet from an interface at `from` enters the subnet of the interface `to` from
    /// another subnet.
    pub fn crosses(&self, from: &Location, to: EniId) -> bool {
        self.ports.get(&to).is_none_or(|port| port.subnet != from.subnet)
    }

    /// Returns the interface of this host that a packet from the internet is for, and the packet
    /// with the interface's private address as its destination. The error is
    /// [`Reason::NoInterface`] if no interface of this host has the destination address.
    pub fn arrive(&self, packet: &Packet) -> Result<Arrival, Reason> {
        let mut packet = *packet;
        same_family(&packet)?;
        let of_cloud = self.clouds.values().any(|blocks| blocks.contains(packet.source));
        if of_cloud || !walk::is_carried(self.internet_private, packet.source) {
            return Err(Reason::NotFromOutside);
        }
        match packet.destination {
            IpAddr::V4(public) => {
                let found = self.gateways.arrivals.get(&public).ok_or(Reason::NoInterface)?;
                let (eni, private) = *found;
                let port = self.ports.get(&eni).ok_or(Reason::NoInterface)?;
                if !port.own.contains(private.into()) {
                    return Err(Reason::NoInterface);
                }
                self.check_attached(self.subnet(port.subnet)?.vpc)?;
                packet.destination = private.into();
                Ok(Arrival { eni, packet, begins: Ok(()) })
            }
            IpAddr::V6(address) => {
                let mut clouds = self.clouds.iter();
                let here = clouds.find(|(_, blocks)| blocks.contains(address.into()));
                let vpc = *here.ok_or(Reason::NoInterface)?.0;
                let table = self.mapping.get(&vpc).ok_or(Reason::NoInterface)?;
                let place = table.at(address.into()).min_by_key(|place| place.eni);
                let place = place.ok_or(Reason::NoInterface)?;
                let port = self.ports.get(&place.eni).ok_or(Reason::NoInterface)?;
                let back = self.subnet(port.subnet)?.route(packet.source);
                let begins = match back {
                    Some(Target::EgressOnlyGateway(_)) => Err(Reason::OutwardsOnly),
                    _ => self.check_attached(vpc),
                };
                Ok(Arrival { eni: place.eni, packet, begins })
            }
        }
    }

    /// Evaluates a packet from the internet that begins a flow. Returns the interface of this host
    /// that the packet is for, the packet with the interface's private address as its destination,
    /// and how the interface tracks the flow.
    pub fn from_internet(&self, packet: &Packet) -> Result<(EniId, Packet, Tracking), Reason> {
        let Arrival { eni, packet, begins } = self.arrive(packet)?;
        begins?;
        let tracking = self.receive(eni, &packet, None, true, Flow::New)?;
        Ok((eni, packet, tracking.ok_or(Reason::GroupsIn)?))
    }

    fn check_attached(&self, vpc: VpcId) -> Result<(), Reason> {
        if self.gateways.attached.contains(&vpc) { Ok(()) } else { Err(Reason::Detached) }
    }

    fn leave(
        &self,
        sender: Option<&Location>,
        from: SubnetId,
        way: &mut RoutedPacket,
    ) -> Result<Next<'_>, Reason> {
        way.routes_left = way.routes_left.checked_sub(1).ok_or(Reason::Circle)?;
        let packet = &mut way.packet;
        self.ask_acl(from, Direction::Egress, packet)?;
        let subnet = self.subnet(from)?;
        subnet.routes.as_ref().ok_or(Reason::Missing(MissingObject::Subnet))?;
        let target = subnet.route(packet.destination).ok_or(Reason::NoRoute)?;
        let (vpc, gone) = (subnet.vpc, Reason::Missing(MissingObject::Gateway));
        match target {
            Target::Blackhole => Err(Reason::Blackhole),
            Target::Local => self.towards(sender, from, [vpc, vpc], way),
            Target::Peering(id) => {
                let ends = self.gateways.peerings.get(&id).ok_or(gone)?;
                let ends = ends.ok_or(Reason::NotPeered)?;
                match ends {
                    [own, other] | [other, own] if own == vpc => {
                        self.towards(sender, from, [vpc, other], way)
                    }
                    _ => Err(Reason::NotPeered),
                }
            }
            Target::InternetGateway(id) => {
                if *self.gateways.internet.get(&id).ok_or(gone)? != Some(vpc) {
                    return Err(Reason::Detached);
                }
                walk::check_carried(self.internet_private, packet.destination)?;
                if let IpAddr::V4(private) = packet.source {
                    packet.source = self.public_of(vpc, private)?.into();
                }
                Ok(Next::Left(Exit::InternetGateway(id)))
            }
            Target::EgressOnlyGateway(id) => {
                let of = *self.gateways.egress_only.get(&id).ok_or(gone)?;
                if packet.destination.is_ipv4() {
                    return Err(Reason::WrongFamily);
                }
                if of != vpc {
                    return Err(Reason::Detached);
                }
                walk::check_carried(self.internet_private, packet.destination)?;
                Ok(Next::Left(Exit::EgressOnlyGateway(id)))
            }
            Target::Endpoint(id) => {
                if self.gateways.endpoints.get(&id).ok_or(gone)?.0 != vpc {
                    return Err(Reason::Detached);
                }
                Ok(Next::Left(Exit::Endpoint(id)))
            }
            Target::NatGateway(id) => {
                let nat = self.gateways.nat.get(&id).ok_or(gone)?;
                way.nat = Some(id);
                self.by_nat(nat, from, vpc, way)
            }
            Target::Eni(id) => {
                let middlebox = self.gateways.middleboxes.get(&id).ok_or(Reason::Blackhole)?;
                if middlebox.vpc.ok_or(Reason::Missing(MissingObject::Subnet))? != vpc {
                    return Err(Reason::Detached);
                }
                if middlebox.source_dest_check && !middlebox.own.contains(packet.destination) {
                    return Err(Reason::ChecksDestination);
                }
                let (place, reach) = (&middlebox.place, Reach::Vpc);
                let direct = middlebox.own.contains(packet.destination);
                Ok(Next::To { place, crosses: place.subnet != from, reach, direct })
            }
        }
    }

    /// Finds the interface that has the destination address, in the sender's cloud or in a peered
    /// cloud.
    fn towards(
        &self,
        sender: Option<&Location>,
        from: SubnetId,
        [own, vpc]: [VpcId; 2],
        way: &RoutedPacket,
    ) -> Result<Next<'_>, Reason> {
        let packet = &way.packet;
        let has = |vpc: VpcId, address: IpAddr| {
            self.clouds.get(&vpc).is_some_and(|blocks| blocks.contains(address))
        };
        if has(vpc, packet.source) && !has(own, packet.source) {
            return Err(Reason::NoTransit); // V1
        }
        if let Some((nat, _)) = self.nat_at(vpc, packet.destination) {
            let is_answer = way.nat.is_none() && sender.is_some();
            return if is_answer { Ok(Next::Nat(nat)) } else { Err(Reason::OutwardsOnly) };
        }
        let has_it = has(vpc, packet.destination);
        let place = match self.at(vpc, packet.destination) {
            At::Here(place) => place,
            At::Unknown(question) => return Ok(Next::Ask(question)),
            At::Nobody if vpc == own || has_it => return Err(Reason::NoInterface),
            At::Nobody => return Err(Reason::NoTransit),
        };
        let reach = match sender {
            _ if vpc != own => Reach::Peering,
            Some(sender) => sender.reach(place),
            None => Reach::Vpc,
        };
        Ok(Next::To { place, crosses: place.subnet != from, reach, direct: true })
    }

    fn by_nat(
        &self,
        nat: &Nat,
        from: SubnetId,
        vpc: VpcId,
        way: &mut RoutedPacket,
    ) -> Result<Next<'_>, Reason> {
        let packet = &mut way.packet;
        if packet.source.is_ipv6() {
            return Err(Reason::WrongFamily);
        }
        if nat.vpc.ok_or(Reason::Missing(MissingObject::Subnet))? != vpc {
            return Err(Reason::Detached);
        }
        if nat.subnet == from {
            return Err(Reason::Circle);
        }
        self.ask_acl(nat.subnet, Direction::Ingress, packet)?;
        packet.source = nat.private.into();
        let other = self.nat_at(vpc, packet.destination);
        if other.is_some_and(|(_, of)| of == nat.subnet) {
            return Err(Reason::OutwardsOnly);
        }
        match self.near(nat.subnet, self.subnet(nat.subnet)?, packet.destination) {
            At::Here(place) => {
                Ok(Next::To { place, crosses: false, reach: Reach::Vpc, direct: true })
            }
            At::Nobody => self.leave(None, nat.subnet, way),
            At::Unknown(question) => Ok(Next::Ask(question)),
        }
    }

    /// Evaluates an answer that a NAT gateway has assigned to a connection, on its path from the
    /// gateway to the interface of this host that opened the connection. `port`: the port of the
    /// gateway. `sender`: the interface that sent the answer; `None` if it comes from outside.
    pub fn back_by_nat(
        &self,
        id: NatGatewayId,
        to: EniId,
        packet: &Packet,
        port: u16,
        sender: Option<EniId>,
    ) -> Result<(), Reason> {
        let nat = self.gateways.nat.get(&id).ok_or(Reason::Missing(MissingObject::Gateway))?;
        let subnet = self.subnet(nat.subnet)?;
        let is_near = match self.near(nat.subnet, subnet, packet.source) {
            At::Here(place) => Some(place.eni) == sender,
            At::Nobody | At::Unknown(_) => false,
        };
        if !is_near {
            let before = Packet { destination: nat.private.into(), ..*packet };
            self.ask_acl(nat.subnet, Direction::Ingress, &before.to_port(port))?;
        }
        let mut way = RoutedPacket { packet: *packet, nat: None, routes_left: ROUTES_MAX - 1 };
        let next = match self.near(nat.subnet, subnet, packet.destination) {
            At::Here(place) => return self.is_place(place, to),
            At::Nobody | At::Unknown(_) => self.leave(None, nat.subnet, &mut way)?,
        };
        match next {
            Next::To { place, .. } if way.nat.is_none() => self.is_place(place, to),
            _ => Err(Reason::AnotherWayBack),
        }
    }

    fn is_place(&self, place: &Location, to: EniId) -> Result<(), Reason> {
        if place.eni == to { Ok(()) } else { Err(Reason::AnotherWayBack) }
    }

    /// Checks that the interface `from` may send packets through a NAT gateway to the interface
    /// `to` of this host. `source`: the packet's source, which is the gateway's address. Returns
    /// the location and the cloud of `from`, and whether the packet enters the receiver's subnet
    /// from outside.
    pub fn sender_by_nat(
        &self,
        to: EniId,
        from: EniId,
        source: IpAddr,
    ) -> Result<(SenderPlace<'_>, bool), NoSender> {
        let port = self.ports.get(&to).ok_or(NoSender::NotIts)?;
        let own = self.subnet(port.subnet).map_err(|_| NoSender::NotIts)?.vpc;
        let reaches = |vpc: VpcId| vpc == own || self.peered.contains(&(own, vpc));
        let crosses = |vpc: VpcId| {
            let (_, subnet) = self.nat_at(vpc, source).filter(|_| reaches(vpc))?;
            Some(subnet != port.subnet)
        };
        if self.asks && !self.ports.contains_key(&from) {
            let question = Question::Interface(from);
            let answer = self.known.ask(question).ok_or(NoSender::Ask(question))?;
            let Answer::Interface(_, Some(of)) = answer else { return Err(NoSender::NotIts) };
            let found = of.vpc.and_then(|vpc| Some((vpc, crosses(vpc)?)));
            let (vpc, crosses) = found.ok_or(NoSender::NotIts)?;
            return Ok((SenderPlace { place: &of.place, vpc }, crosses));
        }
        let mut tables = self.mapping.iter();
        let found = tables.find_map(|(vpc, table)| {
            let place = table.all().find(|place| place.eni == from)?;
            Some((SenderPlace { place, vpc: *vpc }, crosses(*vpc)?))
        });
        found.ok_or(NoSender::NotIts)
    }

    /// Returns the NAT gateway of a cloud that has this address, and the gateway's subnet.
    fn nat_at(&self, vpc: VpcId, address: IpAddr) -> Option<(NatGatewayId, SubnetId)> {
        let IpAddr::V4(address) = address else { return None };
        self.gateways.nats.get(&(vpc, address)).copied()
    }

    fn public_of(&self, vpc: VpcId, private: Ipv4Addr) -> Result<Ipv4Addr, Reason> {
        if let Some(public) = self.gateways.elastic.get(&(vpc, private)) {
            return Ok(*public);
        }
        let of_nat = self.gateways.of_nat.get(&(vpc, private));
        of_nat.copied().unwrap_or(Err(Reason::NoPublicAddress))
    }

    /// Finds the interface of a cloud that has this address.
    fn at(&self, vpc: VpcId, address: IpAddr) -> At<'_> {
        let Some(table) = self.mapping.get(&vpc) else { return At::Nobody };
        let place = table.at(address).min_by_key(|place| place.eni);
        if let Some(place) = place {
            return At::Here(place);
        }
        // An interface's addresses always lie in the blocks of its cloud.
        let blocks = self.clouds.get(&vpc).filter(|_| self.asks);
        if !blocks.is_some_and(|blocks| blocks.contains(address)) {
            return At::Nobody;
        }
        let question = Question::Address(vpc, address);
        match self.known.ask(question) {
            Some(Answer::Address(.., Some(place))) => At::Here(place),
            Some(_) => At::Nobody,
            None => At::Unknown(question),
        }
    }

    /// Finds the interface of a subnet that has this address.
    fn near(&self, id: SubnetId, subnet: &SubnetRules, address: IpAddr) -> At<'_> {
        match self.at(subnet.vpc, address) {
            At::Here(place) if place.subnet != id => At::Nobody,
            at => at,
        }
    }

    fn subnet(&self, id: SubnetId) -> Result<&SubnetRules, Reason> {
        self.subnets.get(&id).ok_or(Reason::Missing(MissingObject::Subnet))
    }

    fn ask_acl(&self, id: SubnetId, direction: Direction, packet: &Packet) -> Result<(), Reason> {
        let acl: Option<&AclRules> = self.acls.get(&self.subnet(id)?.acl);
        let acl = acl.ok_or(Reason::Missing(MissingObject::Subnet))?;
        match (acl.allows(direction, packet), direction) {
            (true, _) => Ok(()),
            (false, Direction::Egress) => Err(Reason::AclOut),
            (false, Direction::Ingress) => Err(Reason::AclIn),
        }
    }
}

impl SubnetRules {
    pub(super) fn route(&self, to: IpAddr) -> Option<Target> {
        let routes = self.routes.as_ref().filter(|_| !route::is_reserved(to))?;
        routes.at(to).next().map(|(_, target)| *target)
    }
}

impl Location {
    fn reach(&self, other: &Location) -> Reach {
        if self.cluster.is_some() && self.cluster == other.cluster {
            Reach::Cluster
        } else if self.zone == other.zone {
            Reach::Zone
        } else {
            Reach::Vpc
        }
    }
}

fn same_family(packet: &Packet) -> Result<(), Reason> {
    let same = packet.source.is_ipv4() == packet.destination.is_ipv4();
    if same { Ok(()) } else { Err(Reason::Families) }
}
