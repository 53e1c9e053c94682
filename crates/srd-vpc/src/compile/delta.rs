//! What a host has to change.

use super::blocks::Blocks;
use super::policy::AclRules;
use super::*;
use ipnet::IpNet;

/// A change of one host's tables. Deltas, and answers, of one directory reach a host in the order
/// in which they were made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delta {
    /// All tables of the host but addresses of groups that it has, and answers.
    pub(super) whole: Option<Rules>,
    pub(super) acls: BTreeMap<AclId, Option<AclRules>>,
    pub(super) clouds: BTreeMap<VpcId, Option<Blocks<()>>>,
    /// Blocks that have come into groups, and that have left them.
    pub(super) members: BTreeMap<GroupId, BTreeMap<IpNet, bool>>,
    pub(super) withdrawn: Vec<Question>,
}

impl Delta {
    /// Whether the host's own interfaces, or what their subnets lead to, are compiled anew.
    pub fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// Blocks of groups that come and go.
    pub fn members(&self) -> usize {
        self.members.values().map(BTreeMap::len).sum()
    }

    /// Access control lists that change.
    pub fn acls(&self) -> usize {
        self.acls.len()
    }

    /// Answers that do not hold any more.
    pub fn withdrawn(&self) -> &[Question] {
        &self.withdrawn
    }
}

impl Rules {
    /// Follows a change. The caller forgets all verdicts then: if any of them has changed, it was
    /// by this.
    pub fn apply(&mut self, delta: Delta) {
        if let Some(mut whole) = delta.whole {
            for (id, members) in core::mem::take(&mut self.members) {
                if let Some(of) = whole.members.get_mut(&id) {
                    *of = members;
                }
            }
            whole.keep_answers_of(self);
            *self = whole;
        }
        for (id, acl) in delta.acls {
            match acl {
                Some(acl) => _ = self.acls.insert(id, acl),
                None => _ = self.acls.remove(&id),
            }
        }
        for (id, cloud) in delta.clouds {
            match cloud {
                Some(cloud) => _ = self.clouds.insert(id, cloud),
                None => _ = self.clouds.remove(&id),
            }
        }
        for (id, blocks) in delta.members {
            let Some(members) = self.members.get_mut(&id) else { continue };
            for (block, is_member) in blocks {
                if is_member { members.add(block) } else { members.remove(block) }
            }
        }
        for question in delta.withdrawn {
            self.withdraw(question);
        }
    }
}
