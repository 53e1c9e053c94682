//! Security groups and managed prefix lists.

use super::Traffic;
use crate::id::*;
use alloc::string::String;
use alloc::vec::Vec;
use ipnet::IpNet;

/// A security group: what its interfaces may receive and send. It only allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group's name, unique within its cloud.
    pub name: String,
    /// Description of the group.
    pub description: String,
    /// The cloud that it belongs to.
    pub vpc: VpcId,
    /// Rules in both directions.
    pub rules: Vec<GroupRule>,
}

/// One rule of a security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRule {
    /// The rule's own identifier.
    pub id: GroupRuleId,
    /// Direction of packets: true for outbound.
    pub egress: bool,
    /// Matched packets.
    pub traffic: Traffic,
    /// The other side.
    pub peer: RulePeer,
    /// Description of the rule.
    pub description: String,
}

/// The other side of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RulePeer {
    /// A block of addresses.
    Block(IpNet),
    /// The blocks of a prefix list.
    List(PrefixListId),
    /// The private addresses of the interfaces in a group, one level deep: the rules of that group
    /// are not taken over.
    Group(GroupId),
}

/// A managed prefix list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixList {
    /// The list's name.
    pub name: String,
    /// The greatest number of entries; a rule that names the list counts as so many rules.
    pub max_entries: u16,
    /// Its blocks, all of one family.
    pub entries: Vec<IpNet>,
}
