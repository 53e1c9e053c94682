//! Security groups and managed prefix lists.

use super::Traffic;
use crate::id::*;
use alloc::string::String;
use alloc::vec::Vec;
use ipnet::IpNet;

/// A security group: rules that allow packets to and from its interfaces. No rule denies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group's name, unique within its cloud.
    pub name: String,
    /// Description of the group.
    pub description: String,
    /// The cloud that the group belongs to.
    pub vpc: VpcId,
    /// Rules in both directions.
    pub rules: Vec<GroupRule>,
}

/// One rule of a security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRule {
    /// Identifier of the rule.
    pub id: GroupRuleId,
    /// Direction of packets: true for outbound.
    pub egress: bool,
    /// Packets that the rule matches.
    pub traffic: Traffic,
    /// Remote addresses that the rule matches: sources of incoming packets, destinations of
    /// outgoing packets.
    pub peer: RulePeer,
    /// Description of the rule.
    pub description: String,
}

/// Remote addresses that a rule of a security group matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RulePeer {
    /// A block of addresses.
    Block(IpNet),
    /// The blocks of a prefix list.
    List(PrefixListId),
    /// The private addresses of the interfaces in a security group. The rules of the named group do
    /// not matter for the match.
    Group(GroupId),
}

/// A managed prefix list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixList {
    /// The list's name.
    pub name: String,
    /// Largest number of entries. A rule that names the list counts as this number of rules.
    pub max_entries: u16,
    /// Blocks of the list, all of one address family.
    pub entries: Vec<IpNet>,
}
