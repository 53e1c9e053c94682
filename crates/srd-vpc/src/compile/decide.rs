//! What the tables of a host say about a packet.

use super::policy::AclRules;
use super::*;
use crate::judge::groups::{Direction, Tracking};
use crate::judge::{Exit, Gone, Reach, Reason, Service, route, walk};
use crate::packet::Packet;
use core::net::IpAddr;

/// Subnets that a packet may be routed from: its own, and that of a NAT gateway.
const ROUTES_MAX: usize = 2;

/// What becomes of a packet that an interface of the host sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent<'a> {
    /// Where it goes.
    pub next: Next<'a>,
    /// The packet, with the addresses that gateways have written.
    pub packet: Packet,
    /// Whether the sender's groups track its flow; `None` if they are not asked.
    pub tracking: Option<Tracking>,
}

/// Where a packet goes that the sender's side lets pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<'a> {
    /// To a service of the network's own.
    Served(Service),
    /// Out of all clouds.
    Left(Exit),
    /// To an interface, whose host judges with [`Rules::receive`].
    To {
        /// Where the interface is.
        place: &'a Place,
        /// Whether the packet enters the interface's subnet from outside of it, so that the
        /// subnet's list is asked.
        crosses: bool,
        /// How far apart the two are.
        reach: Reach,
    },
}

impl Rules {
    /// Judges a packet that an interface of the host sends and that begins a flow.
    pub fn send(&self, eni: EniId, packet: &Packet) -> Result<Sent<'_>, Reason> {
        let mut packet = *packet;
        same_family(&packet)?;
        let port = self.ports.get(&eni).ok_or(Reason::Missing(Gone::Eni))?;
        if port.source_dest_check && !port.own.contains(packet.source) {
            return Err(Reason::NotItsAddress);
        }
        let subnet = self.subnet(port.subnet)?;
        let to = packet.destination;
        let services = subnet.services;
        let service = services.and_then(|(resolver, dns)| walk::service(resolver, dns, to));
        if let Some(service) = service.filter(|service| !service.is_filtered()) {
            return Ok(Sent { next: Next::Served(service), packet, tracking: None });
        }
        let automatic = match subnet.route(to) {
            Some(Target::EgressOnlyGateway(_) | Target::NatGateway(_)) => true,
            Some(Target::Endpoint(id)) => self.gateways.endpoints.get(&id).is_some_and(|e| e.1),
            _ => false,
        };
        let tracking = port.policy.ask(&self.members, Direction::Egress, &packet, automatic);
        let tracking = Some(tracking.ok_or(Reason::GroupsOut)?);
        if let Some(service) = service {
            return Ok(Sent { next: Next::Served(service), packet, tracking });
        }
        let near = self.place(subnet.vpc, to).filter(|place| place.subnet == port.subnet);
        let next = if let Some(place) = near {
            Next::To { place, crosses: false, reach: port.place.reach(place) }
        } else {
            self.leave(Some(&port.place), port.subnet, &mut packet, ROUTES_MAX)?
        };
        Ok(Sent { next, packet, tracking })
    }

    /// Judges a packet that arrives for an interface of the host. `crosses`: from outside of the
    /// interface's subnet.
    pub fn receive(&self, eni: EniId, packet: &Packet, crosses: bool) -> Result<Tracking, Reason> {
        let port = self.ports.get(&eni).ok_or(Reason::Missing(Gone::Eni))?;
        if crosses {
            self.ask_acl(port.subnet, Direction::Ingress, packet)?;
        }
        let tracking = port.policy.ask(&self.members, Direction::Ingress, packet, false);
        tracking.ok_or(Reason::GroupsIn)
    }

    /// Judges a packet from the internet: the interface of this host that it is for, and the packet
    /// with its private address. [`Reason::NoInterface`]: it is for none of this host's.
    pub fn from_internet(&self, packet: &Packet) -> Result<(EniId, Packet, Tracking), Reason> {
        let mut packet = *packet;
        same_family(&packet)?;
        let of_cloud = self.clouds.values().any(|blocks| blocks.contains(packet.source));
        if of_cloud || !walk::is_carried(packet.source) {
            return Err(Reason::NotFromOutside);
        }
        let id = match packet.destination {
            IpAddr::V4(public) => {
                let found = self.gateways.arrivals.get(&public).ok_or(Reason::NoInterface)?;
                let (id, private) = *found;
                let port = self.ports.get(&id).ok_or(Reason::NoInterface)?;
                if !port.own.contains(private.into()) {
                    return Err(Reason::NoInterface);
                }
                self.check_attached(self.subnet(port.subnet)?.vpc)?;
                packet.destination = private.into();
                id
            }
            IpAddr::V6(address) => {
                let mut clouds = self.clouds.iter();
                let here = clouds.find(|(_, blocks)| blocks.contains(address.into()));
                let vpc = *here.ok_or(Reason::NoInterface)?.0;
                let place = self.place(vpc, address.into()).ok_or(Reason::NoInterface)?;
                let port = self.ports.get(&place.eni).ok_or(Reason::NoInterface)?;
                let back = self.subnet(port.subnet)?.route(packet.source);
                if matches!(back, Some(Target::EgressOnlyGateway(_))) {
                    return Err(Reason::OutwardsOnly);
                }
                self.check_attached(vpc)?;
                place.eni
            }
        };
        let tracking = self.receive(id, &packet, true)?;
        Ok((id, packet, tracking))
    }

    fn check_attached(&self, vpc: VpcId) -> Result<(), Reason> {
        if self.gateways.attached.contains(&vpc) { Ok(()) } else { Err(Reason::Detached) }
    }

    fn leave(
        &self,
        sender: Option<&Place>,
        from: SubnetId,
        packet: &mut Packet,
        routes_left: usize,
    ) -> Result<Next<'_>, Reason> {
        let routes_left = routes_left.checked_sub(1).ok_or(Reason::Circle)?;
        self.ask_acl(from, Direction::Egress, packet)?;
        let subnet = self.subnet(from)?;
        subnet.routes.as_ref().ok_or(Reason::Missing(Gone::Subnet))?;
        let target = subnet.route(packet.destination).ok_or(Reason::NoRoute)?;
        let (vpc, gone) = (subnet.vpc, Reason::Missing(Gone::Gateway));
        match target {
            Target::Blackhole => Err(Reason::Blackhole),
            Target::Local => self.towards(sender, from, [vpc, vpc], packet),
            Target::Peering(id) => {
                let ends = self.gateways.peerings.get(&id).ok_or(gone)?;
                let ends = ends.ok_or(Reason::NotPeered)?;
                match ends {
                    [own, other] | [other, own] if own == vpc => {
                        self.towards(sender, from, [vpc, other], packet)
                    }
                    _ => Err(Reason::NotPeered),
                }
            }
            Target::InternetGateway(id) => {
                if *self.gateways.internet.get(&id).ok_or(gone)? != Some(vpc) {
                    return Err(Reason::Detached);
                }
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
                self.by_nat(nat, from, vpc, packet, routes_left)
            }
            Target::Eni(id) => {
                let middlebox = self.gateways.middleboxes.get(&id).ok_or(Reason::Blackhole)?;
                if middlebox.vpc.ok_or(Reason::Missing(Gone::Subnet))? != vpc {
                    return Err(Reason::Detached);
                }
                if middlebox.source_dest_check && !middlebox.own.contains(packet.destination) {
                    return Err(Reason::ChecksDestination);
                }
                let place = &middlebox.place;
                Ok(Next::To { place, crosses: place.subnet != from, reach: Reach::Vpc })
            }
        }
    }

    /// To the interface that has the destination, in the own cloud or in the other one.
    fn towards(
        &self,
        sender: Option<&Place>,
        from: SubnetId,
        [own, vpc]: [VpcId; 2],
        packet: &Packet,
    ) -> Result<Next<'_>, Reason> {
        let Some(place) = self.place(vpc, packet.destination) else {
            let blocks = self.clouds.get(&vpc);
            let has_it = blocks.is_some_and(|blocks| blocks.contains(packet.destination));
            let inside = vpc == own || has_it;
            return Err(if inside { Reason::NoInterface } else { Reason::NoTransit });
        };
        let reach = match sender {
            _ if vpc != own => Reach::Peering,
            Some(sender) => sender.reach(place),
            None => Reach::Vpc,
        };
        Ok(Next::To { place, crosses: place.subnet != from, reach })
    }

    fn by_nat(
        &self,
        nat: &Nat,
        from: SubnetId,
        vpc: VpcId,
        packet: &mut Packet,
        routes_left: usize,
    ) -> Result<Next<'_>, Reason> {
        if packet.source.is_ipv6() {
            return Err(Reason::WrongFamily);
        }
        if nat.vpc.ok_or(Reason::Missing(Gone::Subnet))? != vpc {
            return Err(Reason::Detached);
        }
        if nat.subnet == from {
            return Err(Reason::Circle);
        }
        self.ask_acl(nat.subnet, Direction::Ingress, packet)?;
        packet.source = nat.private.into();
        let near = self.place(vpc, packet.destination);
        if let Some(place) = near.filter(|place| place.subnet == nat.subnet) {
            return Ok(Next::To { place, crosses: false, reach: Reach::Vpc });
        }
        self.leave(None, nat.subnet, packet, routes_left)
    }

    fn public_of(&self, vpc: VpcId, private: Ipv4Addr) -> Result<Ipv4Addr, Reason> {
        if let Some(public) = self.gateways.elastic.get(&(vpc, private)) {
            return Ok(*public);
        }
        let of_nat = self.gateways.of_nat.get(&(vpc, private));
        of_nat.copied().unwrap_or(Err(Reason::NoPublicAddress))
    }

    /// The interface of a cloud that has an address.
    pub fn place(&self, vpc: VpcId, address: IpAddr) -> Option<&Place> {
        self.mapping.get(&vpc)?.at(address).min_by_key(|place| place.eni)
    }

    fn subnet(&self, id: SubnetId) -> Result<&SubnetRules, Reason> {
        self.subnets.get(&id).ok_or(Reason::Missing(Gone::Subnet))
    }

    fn ask_acl(&self, id: SubnetId, direction: Direction, packet: &Packet) -> Result<(), Reason> {
        let acl: Option<&AclRules> = self.acls.get(&self.subnet(id)?.acl);
        let acl = acl.ok_or(Reason::Missing(Gone::Subnet))?;
        match (acl.allows(direction, packet), direction) {
            (true, _) => Ok(()),
            (false, Direction::Egress) => Err(Reason::AclOut),
            (false, Direction::Ingress) => Err(Reason::AclIn),
        }
    }
}

impl SubnetRules {
    fn route(&self, to: IpAddr) -> Option<Target> {
        let routes = self.routes.as_ref().filter(|_| !route::is_reserved(to))?;
        routes.at(to).next().map(|(_, target)| *target)
    }
}

impl Place {
    fn reach(&self, other: &Place) -> Reach {
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
