//! What of a world a host needs.

use super::blocks::{self, Blocks};
use super::policy::{AclRules, Members, Policy};
use super::*;
use crate::judge::Gone;
use crate::judge::{route, walk};
use crate::object::{Eni, Strategy, World};
use ipnet::IpNet;

impl Rules {
    /// Compiles the tables of a host. An object that is referred to and does not exist refuses the
    /// packets that need it.
    pub fn compile(world: &World, host: &str) -> Self {
        let places = Places::new(world);
        let mut rules = Self {
            host: host.into(),
            ports: BTreeMap::new(),
            subnets: BTreeMap::new(),
            acls: BTreeMap::new(),
            members: Members::new(),
            mapping: BTreeMap::new(),
            unchecked: BTreeMap::new(),
            peered: BTreeSet::new(),
            clouds: clouds(world),
            gateways: Gateways::default(),
        };
        let mut policies = BTreeMap::new();
        for (id, eni) in &world.enis {
            if host_of(world, eni) == Some(host) {
                rules.add_port(world, &places, &mut policies, *id, eni);
            }
        }
        rules.add_subnets(world);
        rules.add_gateways(world, &places);
        rules.add_members(world);
        rules.add_mapping(world, &places);
        rules
    }

    fn add_port(
        &mut self,
        world: &World,
        places: &Places<'_>,
        policies: &mut BTreeMap<(Option<VpcId>, Vec<GroupId>), Arc<Policy>>,
        id: EniId,
        eni: &Eni,
    ) {
        let vpc = world.subnets.get(&eni.subnet).map(|subnet| subnet.vpc);
        let policy = policies.entry((vpc, eni.groups.clone())).or_insert_with(|| {
            Arc::new(Policy::new(world, &eni.groups, |named| is_visible(world, vpc, named)))
        });
        let mut own = Blocks::default();
        blocks::of_eni(eni).for_each(|block| own.add(block));
        let port = Port {
            subnet: eni.subnet,
            source_dest_check: eni.source_dest_check,
            own,
            policy: policy.clone(),
            place: places.of(id, eni),
        };
        self.ports.insert(id, port);
    }

    /// The subnets of the ports, and those of the NAT gateways that their routes lead to.
    fn add_subnets(&mut self, world: &World) {
        let mut tables = BTreeMap::new();
        let mut open: Vec<SubnetId> = self.ports.values().map(|port| port.subnet).collect();
        while let Some(id) = open.pop() {
            let Some(subnet) = world.subnets.get(&id).filter(|_| !self.subnets.contains_key(&id))
            else {
                continue;
            };
            let vpc = world.vpcs.get(&subnet.vpc);
            let table = vpc.map(|vpc| subnet.route_table.unwrap_or(vpc.main_route_table));
            let routes = table.and_then(|table| {
                let compiled = tables.entry((subnet.vpc, table));
                compiled.or_insert_with(|| routes(world, subnet.vpc, table).map(Arc::new)).clone()
            });
            if let Some(acl) = world.acls.get(&subnet.acl) {
                self.acls.entry(subnet.acl).or_insert_with(|| AclRules::new(acl));
            }
            let table = table.and_then(|table| world.route_tables.get(&table));
            for route in table.into_iter().flat_map(|table| &table.routes) {
                if let Target::NatGateway(nat) = route.target {
                    open.extend(world.nat_gateways.get(&nat).map(|nat| nat.subnet));
                }
            }
            let services = vpc.and_then(|vpc| Some((walk::resolver(vpc)?, vpc.dns_support)));
            let rules = SubnetRules { vpc: subnet.vpc, acl: subnet.acl, routes, services };
            self.subnets.insert(id, rules);
        }
    }

    fn add_gateways(&mut self, world: &World, places: &Places<'_>) {
        let targets: BTreeSet<Target> = self
            .subnets
            .values()
            .filter_map(|s| s.routes.as_ref())
            .flat_map(|r| r.all().map(|(_, target)| *target))
            .collect();
        let own: BTreeSet<VpcId> = self.subnets.values().map(|subnet| subnet.vpc).collect();
        let vpc_of = |id: &SubnetId| world.subnets.get(id).map(|subnet| subnet.vpc);
        let gateways = &mut self.gateways;
        for target in targets {
            match target {
                Target::InternetGateway(id) => {
                    gateways.internet.extend(world.internet_gateways.get(&id).map(|g| (id, g.vpc)));
                }
                Target::EgressOnlyGateway(id) => gateways
                    .egress_only
                    .extend(world.egress_only_gateways.get(&id).map(|g| (id, g.vpc))),
                Target::NatGateway(id) => {
                    gateways.nat.extend(world.nat_gateways.get(&id).map(|g| {
                        let vpc = vpc_of(&g.subnet);
                        (id, Nat { subnet: g.subnet, vpc, private: g.private })
                    }));
                }
                Target::Peering(id) => gateways.peerings.extend(
                    world
                        .peerings
                        .get(&id)
                        .map(|p| (id, p.active.then_some([p.requester, p.accepter]))),
                ),
                Target::Endpoint(id) => gateways
                    .endpoints
                    .extend(world.endpoints.get(&id).map(|e| (id, (e.vpc, e.always_tracked)))),
                Target::Eni(id) => gateways.middleboxes.extend(world.enis.get(&id).map(|eni| {
                    let mut own = Blocks::default();
                    blocks::of_eni(eni).for_each(|block| own.add(block));
                    let vpc = vpc_of(&eni.subnet);
                    let source_dest_check = eni.source_dest_check;
                    (id, Middlebox { vpc, source_dest_check, own, place: places.of(id, eni) })
                })),
                Target::Local | Target::Blackhole => {}
            }
        }
        gateways.attached = world
            .internet_gateways
            .values()
            .filter_map(|g| g.vpc)
            .filter(|v| own.contains(v))
            .collect();
        for address in world.addresses.values() {
            let Some((id, private)) = address.association else { continue };
            let Some(eni) = world.enis.get(&id) else { continue };
            if let Some(vpc) = vpc_of(&eni.subnet).filter(|vpc| own.contains(vpc)) {
                gateways.elastic.entry((vpc, private)).or_insert(address.public);
            }
            if self.ports.contains_key(&id) {
                gateways.arrivals.entry(address.public).or_insert((id, private));
            }
        }
        for nat in world.nat_gateways.values() {
            let Some(vpc) = vpc_of(&nat.subnet).filter(|vpc| own.contains(vpc)) else { continue };
            let public = nat.address.ok_or(Reason::PrivateNat).and_then(|id| {
                let address = world.addresses.get(&id);
                Ok(address.ok_or(Reason::Missing(Gone::Gateway))?.public)
            });
            gateways.of_nat.entry((vpc, nat.private)).or_insert(public);
        }
    }

    fn add_members(&mut self, world: &World) {
        let named = self.ports.values().flat_map(|port| port.policy.named());
        self.members = named.map(|id| (id, Blocks::default())).collect();
        let wanted: BTreeSet<GroupId> = self.members.keys().copied().collect();
        self.fill_members(world, &wanted);
    }

    /// Fills the addresses of these groups.
    pub(super) fn fill_members(&mut self, world: &World, groups: &BTreeSet<GroupId>) {
        for id in groups {
            self.members.insert(*id, Blocks::default());
        }
        if groups.is_empty() {
            return;
        }
        for eni in world.enis.values() {
            for id in eni.groups.iter().filter(|id| groups.contains(id)) {
                let Some(set) = self.members.get_mut(id) else { continue };
                blocks::of_eni(eni).for_each(|block| set.add(block));
            }
        }
    }

    fn add_mapping(&mut self, world: &World, places: &Places<'_>) {
        for subnet in self.subnets.values() {
            self.mapping.entry(subnet.vpc).or_default();
        }
        let own: BTreeSet<VpcId> = self.mapping.keys().copied().collect();
        for peering in world.peerings.values().filter(|peering| peering.active) {
            let (a, b) = (peering.requester, peering.accepter);
            for (here, there) in [(a, b), (b, a)] {
                if own.contains(&here) {
                    self.peered.insert((here, there));
                    self.mapping.entry(there).or_default();
                }
            }
        }
        for (id, eni) in &world.enis {
            let Some(subnet) = world.subnets.get(&eni.subnet) else { continue };
            let Some(table) = self.mapping.get_mut(&subnet.vpc) else { continue };
            let place = places.of(*id, eni);
            for block in blocks::of_eni(eni) {
                // Interfaces come in the order of their identifiers: the first one keeps it.
                table.put(block, place.clone(), |_, _| true);
            }
            if !eni.source_dest_check {
                self.unchecked.insert(*id, (subnet.vpc, place));
            }
        }
    }
}

/// Whether rules of a cloud's interfaces may name a group: one of the same cloud or of a peered
/// one.
fn is_visible(world: &World, vpc: Option<VpcId>, named: GroupId) -> bool {
    let (Some(vpc), Some(group)) = (vpc, world.groups.get(&named)) else { return false };
    let ends = [vpc, group.vpc];
    let mut peerings = world.peerings.values().filter(|peering| peering.active);
    vpc == group.vpc
        || peerings.any(|p| ends == [p.requester, p.accepter] || ends == [p.accepter, p.requester])
}

fn clouds(world: &World) -> BTreeMap<VpcId, Blocks<()>> {
    let each = world.vpcs.iter().map(|(id, vpc)| {
        let mut set = Blocks::default();
        vpc.ipv4.iter().for_each(|block| set.add(IpNet::V4(*block)));
        vpc.ipv6.iter().for_each(|block| set.add(IpNet::V6(*block)));
        (*id, set)
    });
    each.collect()
}

/// The routes of a table: for each block the target that wins.
fn routes(world: &World, vpc: VpcId, table: RouteTableId) -> Option<Blocks<(u8, Target)>> {
    let vpc = world.vpcs.get(&vpc)?;
    let local: Vec<IpNet> = (vpc.ipv4.iter().map(|block| IpNet::V4(*block)))
        .chain(vpc.ipv6.iter().map(|block| IpNet::V6(*block)))
        .collect();
    let mut routes = Blocks::default();
    // The better one stays: by rank, then by target.
    let keep = |there: &(u8, Target), new: &(u8, Target)| there >= new;
    for route in &world.route_tables.get(&table)?.routes {
        for block in route::blocks(world, route) {
            if !(route.propagated && local.iter().any(|local| local.contains(&block))) {
                routes.put(block, (route::rank(route), route.target), keep);
            }
        }
    }
    for block in local {
        routes.put(block, (0, Target::Local), keep);
    }
    Some(routes)
}

/// The host of an interface.
pub(super) fn host_of<'a>(world: &'a World, eni: &Eni) -> Option<&'a str> {
    let instance = eni.attachment.as_ref()?.instance;
    world.instances.get(&instance)?.host.as_deref()
}

/// Where interfaces are, with what is needed to say so.
pub(super) struct Places<'a> {
    world: &'a World,
    hosts: BTreeMap<&'a str, Arc<str>>,
    zones: BTreeMap<SubnetId, u32>,
}

impl<'a> Places<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        let names = world.instances.values().filter_map(|instance| instance.host.as_deref());
        let names: BTreeSet<&str> = names.collect();
        let hosts = names.into_iter().map(|name| (name, Arc::from(name))).collect();
        let zones: BTreeSet<&str> = world.subnets.values().map(|s| s.zone.as_str()).collect();
        let zones: BTreeMap<&str, u32> = zones.into_iter().zip(0..).collect();
        let zones = world.subnets.iter().map(|(id, s)| (*id, zones[s.zone.as_str()])).collect();
        Self { world, hosts, zones }
    }

    pub(super) fn of(&self, id: EniId, eni: &Eni) -> Place {
        let instance = eni.attachment.as_ref().map(|attachment| attachment.instance);
        let instance = instance.and_then(|id| self.world.instances.get(&id));
        let cluster = instance.and_then(|instance| instance.placement).filter(|id| {
            let placement = self.world.placements.get(id);
            placement.is_some_and(|placement| placement.strategy == Strategy::Cluster)
        });
        let host = instance.and_then(|instance| instance.host.as_deref());
        Place {
            eni: id,
            subnet: eni.subnet,
            host: host.and_then(|host| self.hosts.get(host).cloned()),
            zone: self.zones.get(&eni.subnet).copied().unwrap_or(u32::MAX),
            express: eni.attachment.as_ref().map(|a| a.express).unwrap_or_default(),
            cluster,
        }
    }
}
