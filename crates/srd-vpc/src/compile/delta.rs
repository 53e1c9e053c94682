//! Changes that a host applies to its tables.

use super::blocks::Blocks;
use super::policy::AclRules;
use super::*;
use ipnet::IpNet;

/// A change of one host's tables. A host has to receive the deltas and answers of one directory in
/// the order in which the directory created them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delta {
    /// New tables that replace those of the host, except its stored answers and the addresses of
    /// groups that it already has; `None` if only the other fields of the delta change the tables.
    pub(super) whole: Option<Rules>,
    pub(super) acls: BTreeMap<AclId, Option<AclRules>>,
    pub(super) clouds: BTreeMap<VpcId, Option<Blocks<()>>>,
    /// Blocks that were added to groups (true) or removed from groups (false).
    pub(super) members: BTreeMap<GroupId, BTreeMap<IpNet, bool>>,
    pub(super) withdrawn: Vec<Question>,
}

impl Delta {
    /// Whether the delta replaces the tables of the host's own interfaces and of the objects that
    /// their subnets refer to.
    pub fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// Returns the number of blocks that are added to groups or removed from them.
    pub fn members(&self) -> usize {
        self.members.values().map(BTreeMap::len).sum()
    }

    /// Returns the number of access control lists that change.
    pub fn acls(&self) -> usize {
        self.acls.len()
    }

    /// Returns the questions whose stored answers are no longer valid.
    pub fn withdrawn(&self) -> &[Question] {
        &self.withdrawn
    }
}

impl Rules {
    /// Applies a change. Returns the verdicts that the change may affect.
    pub fn apply(&mut self, delta: Delta) -> Concern {
        let mut concern = Concern::These(Concerned::default());
        if let Some(mut whole) = delta.whole {
            for (id, of) in &mut whole.members {
                if let Some(members) = self.members.get(id) {
                    of.clone_from(members);
                }
            }
            let known = core::mem::take(&mut self.known);
            concern = self.concern(&whole);
            *self = whole;
            self.known = known;
        }
        for (id, acl) in delta.acls {
            concern.add(self.concerned_by_acl(id));
            match acl {
                Some(acl) => _ = self.acls.insert(id, acl),
                None => _ = self.acls.remove(&id),
            }
        }
        for (id, cloud) in delta.clouds {
            concern = Concern::Everything;
            match cloud {
                Some(cloud) => _ = self.clouds.insert(id, cloud),
                None => _ = self.clouds.remove(&id),
            }
        }
        for (id, blocks) in delta.members {
            concern.add(Concern::These(self.concerned_by_group(id)));
            let Some(members) = self.members.get_mut(&id) else { continue };
            for (block, is_member) in blocks {
                if is_member { members.add(block) } else { members.remove(block) }
            }
        }
        for question in delta.withdrawn {
            concern.add(self.withdraw(question));
        }
        concern
    }

    fn concerned_by_acl(&self, id: AclId) -> Concern {
        let is_of = |subnet: &SubnetId| self.subnets.get(subnet).is_some_and(|of| of.acl == id);
        // Packets of any subnet may pass the subnet of a NAT gateway.
        if self.gateways.nat.values().any(|nat| is_of(&nat.subnet)) {
            return Concern::Everything;
        }
        let ports = self.ports.iter().filter(|(_, port)| is_of(&port.subnet));
        let ways = ports.map(|(eni, _)| *eni).collect();
        Concern::These(Concerned { ways, ..Concerned::default() })
    }

    fn concerned_by_group(&self, id: GroupId) -> Concerned {
        let ports = self.ports.iter().filter(|(_, port)| port.policy.named().any(|of| of == id));
        Concerned { groups: ports.map(|(eni, _)| *eni).collect(), ..Concerned::default() }
    }
}
