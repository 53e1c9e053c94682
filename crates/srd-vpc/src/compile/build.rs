//! Compilation of one host's tables from a world.

use super::blocks::{self, Blocks};
use super::index::Index;
use super::policy::{AclRules, Members, Policy};
use super::*;
use crate::judge::MissingObject;
use crate::judge::{route, walk};
use crate::object::{Eni, Vpc, World};
use ipnet::IpNet;

impl Rules {
    /// Compiles the tables of a host, with all interfaces that the host may reach. If an object
    /// refers to an object that does not exist, packets that need the missing object are refused.
    pub fn compile(world: &World, host: &str) -> Self {
        let index = Index::new(world);
        let mut rules = Self::build(world, &index, host, &BTreeSet::new());
        rules.asks = false;
        // If two interfaces have the same address, the interface with the smaller identifier is
        // used, on whichever host it is.
        rules.mapping.values_mut().for_each(|table| *table = Blocks::default());
        for (id, eni) in &world.enis {
            rules.map(world, &index, *id, eni);
        }
        rules
    }

    /// Compiles tables that query a directory for the locations of other hosts' interfaces. `held`:
    /// groups whose addresses the caller already has; the tables of these groups are left empty.
    pub(super) fn build(
        world: &World,
        index: &Index,
        host: &str,
        held: &BTreeSet<GroupId>,
    ) -> Self {
        let mut rules = Self {
            host: host.into(),
            ports: BTreeMap::new(),
            subnets: BTreeMap::new(),
            acls: BTreeMap::new(),
            members: Members::new(),
            asks: true,
            mapping: BTreeMap::new(),
            unchecked: BTreeMap::new(),
            known: AnswerCache::default(),
            peered: BTreeSet::new(),
            internet_private: world.internet_private,
            clouds: clouds(world),
            gateways: Gateways::default(),
        };
        let mut policies = BTreeMap::new();
        for (id, eni) in index.on_host(world, host) {
            rules.add_port(world, index, &mut policies, id, eni);
        }
        rules.add_subnets(world);
        rules.add_clouds(world);
        for (id, eni) in index.on_host(world, host) {
            rules.map(world, index, id, eni);
        }
        rules.add_gateways(world, index);
        rules.add_elastic(world);
        rules.add_members(index, held);
        rules
    }

    fn add_port(
        &mut self,
        world: &World,
        index: &Index,
        policies: &mut BTreeMap<(Option<VpcId>, Vec<GroupId>), Arc<Policy>>,
        id: EniId,
        eni: &Eni,
    ) {
        let vpc = world.subnets.get(&eni.subnet).map(|subnet| subnet.vpc);
        let policy = policies.entry((vpc, eni.groups.clone())).or_insert_with(|| {
            Arc::new(Policy::new(world, &eni.groups, |named| visible(world, vpc, named)))
        });
        let mut own = Blocks::default();
        blocks::of_eni(eni).for_each(|block| own.add(block));
        let port = Port {
            subnet: eni.subnet,
            source_dest_check: eni.source_dest_check,
            own,
            policy: policy.clone(),
            place: index.place(world, id, eni),
        };
        self.ports.insert(id, port);
    }

    /// Adds the subnets of the ports, and the subnets of the NAT gateways that are targets of their
    /// routes.
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

    fn add_gateways(&mut self, world: &World, index: &Index) {
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
                Target::Eni(id) => gateways
                    .middleboxes
                    .extend(world.enis.get(&id).map(|eni| (id, index.remote(world, id, eni)))),
                Target::Local | Target::Blackhole => {}
            }
        }
        gateways.attached = world
            .internet_gateways
            .values()
            .filter_map(|g| g.vpc)
            .filter(|v| own.contains(v))
            .collect();
        for (id, nat) in &world.nat_gateways {
            let vpc = vpc_of(&nat.subnet).filter(|vpc| self.mapping.contains_key(vpc));
            let Some(vpc) = vpc else { continue };
            gateways.nats.entry((vpc, nat.private)).or_insert((*id, nat.subnet));
            if !own.contains(&vpc) {
                continue;
            }
            let public = nat.address.ok_or(Reason::PrivateNat).and_then(|id| {
                let address = world.addresses.get(&id);
                Ok(address.ok_or(Reason::Missing(MissingObject::Gateway))?.public)
            });
            gateways.of_nat.entry((vpc, nat.private)).or_insert(public);
        }
    }

    /// Adds the public addresses that gateways write into packets of this host, and those by which
    /// packets from the internet reach its interfaces. Interfaces of the host send with their own
    /// source addresses or with the address of a NAT gateway; a middlebox may send with any source
    /// address.
    fn add_elastic(&mut self, world: &World) {
        let vpc_of = |id: &SubnetId| world.subnets.get(id).map(|subnet| subnet.vpc);
        let own: BTreeSet<VpcId> = self.subnets.values().map(|subnet| subnet.vpc).collect();
        let forwarding: BTreeSet<VpcId> = self.unchecked.values().map(|(vpc, _)| *vpc).collect();
        for address in world.addresses.values() {
            let Some((id, private)) = address.association else { continue };
            let Some(eni) = world.enis.get(&id) else { continue };
            let is_here = self.ports.contains_key(&id);
            let may_send = |vpc: VpcId| {
                let place = self.mapping.get(&vpc).and_then(|t| t.at(private.into()).next());
                is_here
                    || place.is_some()
                    || forwarding.contains(&vpc)
                    || self.gateways.of_nat.contains_key(&(vpc, private))
            };
            let vpc = vpc_of(&eni.subnet).filter(|vpc| own.contains(vpc) && may_send(*vpc));
            if let Some(vpc) = vpc {
                self.gateways.elastic.entry((vpc, private)).or_insert(address.public);
            }
            if is_here {
                self.gateways.arrivals.entry(address.public).or_insert((id, private));
            }
        }
    }

    fn add_members(&mut self, index: &Index, held: &BTreeSet<GroupId>) {
        let named = self.ports.values().flat_map(|port| port.policy.named());
        let named: BTreeSet<GroupId> = named.collect();
        let of = |id: &GroupId| match held.contains(id) {
            true => Blocks::default(),
            false => index.members(*id),
        };
        self.members = named.iter().map(|id| (*id, of(id))).collect();
    }

    /// Adds the clouds that the host's interfaces can reach.
    fn add_clouds(&mut self, world: &World) {
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
    }

    /// Adds the location of an interface. The caller adds interfaces in the order of their
    /// identifiers: if several have the same address, the first interface keeps it.
    fn map(&mut self, world: &World, index: &Index, id: EniId, eni: &Eni) {
        let Some(subnet) = world.subnets.get(&eni.subnet) else { return };
        let Some(table) = self.mapping.get_mut(&subnet.vpc) else { return };
        let place = index.place(world, id, eni);
        for block in blocks::of_eni(eni) {
            table.put(block, place.clone(), |_, _| true);
        }
        if !eni.source_dest_check {
            self.unchecked.insert(id, (subnet.vpc, place));
        }
    }
}

/// Returns the cloud of a group that the rules of a cloud's interfaces may name: the group has to
/// belong to this cloud or to a peered cloud.
fn visible(world: &World, vpc: Option<VpcId>, named: GroupId) -> Option<VpcId> {
    let (vpc, group) = (vpc?, world.groups.get(&named)?);
    let ends = [vpc, group.vpc];
    let mut peerings = world.peerings.values().filter(|peering| peering.active);
    let is_visible = vpc == group.vpc
        || peerings.any(|p| ends == [p.requester, p.accepter] || ends == [p.accepter, p.requester]);
    is_visible.then_some(group.vpc)
}

fn clouds(world: &World) -> BTreeMap<VpcId, Blocks<()>> {
    world.vpcs.iter().map(|(id, vpc)| (*id, cloud(vpc))).collect()
}

/// Returns the address blocks of a cloud.
pub(super) fn cloud(vpc: &Vpc) -> Blocks<()> {
    let mut set = Blocks::default();
    vpc.ipv4.iter().for_each(|block| set.add(IpNet::V4(*block)));
    vpc.ipv6.iter().for_each(|block| set.add(IpNet::V6(*block)));
    set
}

/// Returns the routes of a table: for each block of destinations, the rank and the target of the
/// route that wins; `None` if the table or the cloud does not exist.
fn routes(world: &World, vpc: VpcId, table: RouteTableId) -> Option<Blocks<(u8, Target)>> {
    let vpc = world.vpcs.get(&vpc)?;
    let local: Vec<IpNet> = (vpc.ipv4.iter().map(|block| IpNet::V4(*block)))
        .chain(vpc.ipv6.iter().map(|block| IpNet::V6(*block)))
        .collect();
    let mut routes = Blocks::default();
    // The better route stays: the one with the higher rank; if the ranks are equal, the larger
    // target.
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
