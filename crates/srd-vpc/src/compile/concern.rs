//! Extent of the verdicts that a change of a host's tables may affect. A verdict outside of this
//! extent is the same under the old and the new tables.
//!
//! The verdict on a packet depends on three parts: the path of its interface (routes, access
//! control lists, gateways, the interface itself); the security groups of its interface; and the
//! interface that has the other address, with its location. Groups are not evaluated for flows that
//! are tracked.

use super::blocks::differing;
use super::*;
use core::net::IpAddr;

/// Largest number of changed addresses that are listed one by one. If more change together, the
/// change affects all verdicts.
const ADDRESSES_MAX: usize = 1024;

/// The verdicts on packets that a change of a host's tables may affect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Concern {
    /// The change may affect all cached verdicts.
    Everything,
    /// The change may affect only the verdicts on flows of the listed interfaces and addresses.
    These(Concerned),
}

/// Interfaces and addresses that a change affects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Concerned {
    /// Interfaces of the host whose flows are all affected.
    pub ways: BTreeSet<EniId>,
    /// Interfaces of the host whose flows are affected, except tracked flows.
    pub groups: BTreeSet<EniId>,
    /// Addresses that the change gives to another interface, or whose interface it moves to another
    /// location. Flows from and to these addresses are affected.
    pub addresses: BTreeSet<IpAddr>,
}

impl Concern {
    /// Adds the extent of another change.
    pub(super) fn add(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::These(all), Self::These(Concerned { ways, groups, addresses })) => {
                all.ways.extend(ways);
                all.groups.extend(groups);
                all.addresses.extend(addresses);
                if all.addresses.len() > ADDRESSES_MAX {
                    *self = Self::Everything;
                }
            }
            _ => *self = Self::Everything,
        }
    }
}

impl Rules {
    /// Returns the verdicts that may change if `new` replaces these tables. The comparison reads
    /// both tables completely.
    pub fn concern(&self, new: &Self) -> Concern {
        self.concerned(new).map_or(Concern::Everything, Concern::These)
    }

    /// Returns the verdicts that may change if `new` replaces these tables; `None` if all of them
    /// may change.
    fn concerned(&self, new: &Self) -> Option<Concerned> {
        // This pattern names every field. So if a field is added to `Rules`, the code does not
        // compile until the field is compared here.
        let Self {
            host,
            ports,
            subnets: _,
            acls: _,
            members,
            asks,
            mapping,
            unchecked,
            known,
            peered,
            internet_private,
            clouds,
            gateways,
        } = self;
        // A change of stored answers alone arrives as a `Delta`, not as new tables.
        let same = *host == new.host
            && *asks == new.asks
            && *known == new.known
            && *unchecked == new.unchecked
            && *peered == new.peered
            && *internet_private == new.internet_private
            && *clouds == new.clouds
            && mapping.keys().eq(new.mapping.keys());
        if !same {
            return None;
        }
        let mut concerned = Concerned::default();
        for (before, after) in mapping.values().zip(new.mapping.values()) {
            concerned.addresses.extend(before.differing(after)?);
        }
        if concerned.addresses.len() > ADDRESSES_MAX {
            return None;
        }
        self.concern_by_gateways(gateways, new, &mut concerned)?;
        let mut ways = Ways { old: self, new, known: BTreeMap::new() };
        let mut of_members = BTreeMap::new();
        for (id, before) in ports {
            let Some(after) = new.ports.get(id) else {
                concerned.ways.insert(*id);
                continue;
            };
            let Port { subnet, source_dest_check, own, policy, place } = before;
            let same = *subnet == after.subnet
                && *source_dest_check == after.source_dest_check
                && *own == after.own
                && *place == after.place
                && ways.same(*subnet);
            if !same {
                concerned.ways.insert(*id);
                continue;
            }
            let mut same_members = |id: GroupId| {
                *of_members.entry(id).or_insert_with(|| members.get(&id) == new.members.get(&id))
            };
            let same = (Arc::ptr_eq(policy, &after.policy) || *policy == after.policy)
                && policy.named().all(&mut same_members);
            if !same {
                concerned.groups.insert(*id);
            }
        }
        concerned.ways.extend(new.ports.keys().filter(|id| !ports.contains_key(id)));
        Some(concerned)
    }

    fn concern_by_gateways(
        &self,
        before: &Gateways,
        new: &Self,
        concerned: &mut Concerned,
    ) -> Option<()> {
        let Gateways {
            internet,
            attached,
            egress_only,
            nat,
            nats,
            peerings,
            endpoints,
            middleboxes,
            elastic,
            of_nat,
            arrivals,
        } = before;
        let after = &new.gateways;
        let same = *internet == after.internet
            && *attached == after.attached
            && *egress_only == after.egress_only
            && *nat == after.nat
            && *nats == after.nats
            && *peerings == after.peerings
            && *endpoints == after.endpoints
            && *middleboxes == after.middleboxes
            && *of_nat == after.of_nat;
        if !same {
            return None;
        }
        // An interface sends with such an address only if it has the address or its source check is
        // off.
        for (_, address) in differing(elastic, &after.elastic) {
            if nat.values().any(|nat| nat.private == address) {
                return None;
            }
            let address = address.into();
            let sends = |port: &Port| !port.source_dest_check || port.own.contains(address);
            let all = self.ports.iter().filter(|(_, port)| sends(port));
            concerned.ways.extend(all.map(|(id, _)| *id));
        }
        for public in differing(arrivals, &after.arrivals) {
            let ends = [arrivals.get(&public), after.arrivals.get(&public)];
            concerned.ways.extend(ends.into_iter().flatten().map(|(eni, _)| *eni));
        }
        Some(())
    }
}

/// Compares two sets of tables: whether packets that leave or enter a subnet pass equal network
/// ACLs and routes in both.
struct Ways<'a> {
    old: &'a Rules,
    new: &'a Rules,
    known: BTreeMap<SubnetId, bool>,
}

impl Ways<'_> {
    fn same(&mut self, id: SubnetId) -> bool {
        let mut open = Vec::from([id]);
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            if !*self.known.entry(id).or_insert_with(|| is_same(self.old, self.new, id)) {
                return false;
            }
            // Packets may also pass the subnets of NAT gateways.
            let routes = self.old.subnets.get(&id).and_then(|subnet| subnet.routes.as_ref());
            let targets = routes.into_iter().flat_map(|routes| routes.all());
            open.extend(targets.filter_map(|(_, target)| match target {
                Target::NatGateway(id) => Some(self.old.gateways.nat.get(id)?.subnet),
                _ => None,
            }));
        }
        true
    }
}

fn is_same(old: &Rules, new: &Rules, id: SubnetId) -> bool {
    match (old.subnets.get(&id), new.subnets.get(&id)) {
        (Some(before), Some(after)) => {
            before == after && old.acls.get(&before.acl) == new.acls.get(&after.acl)
        }
        (None, None) => true,
        _ => false,
    }
}
