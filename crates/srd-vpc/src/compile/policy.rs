//! The merged security groups of an interface, and access control lists, as tables.
//!
//! All rules for the same traffic form one entry: the union of their blocks, and the groups that
//! they name. Entries are in the order of [`Traffic`]. So a TCP or UDP packet is compared only with
//! entries of its protocol whose first port is at or below its port.

use super::blocks::Blocks;
use crate::id::*;
use crate::judge::groups::{Direction, Tracking};
use crate::judge::traffic;
use crate::object::*;
use crate::packet::{Inner, Packet};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::size_of;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use ipnet::IpNet;

/// The addresses of the interfaces of each group that a rule names.
pub(super) type Members = BTreeMap<GroupId, Blocks<()>>;

/// The merged security groups of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Policy {
    ingress: Side,
    egress: Side,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Side {
    entries: Vec<(Traffic, Peers)>,
    /// For each entry, the largest last port of this entry and of the earlier entries of its
    /// protocol. If the value is below a packet's port, neither this entry nor an earlier entry
    /// matches the packet.
    reach: Vec<u16>,
    /// Whether all packets to or from all addresses are allowed, for TCP and UDP of IPv4, and TCP
    /// and UDP of IPv6.
    open: [bool; 4],
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Peers {
    blocks: Blocks<()>,
    /// Groups that rules name, with their clouds.
    groups: Vec<(GroupId, VpcId)>,
    /// Whether a rule names all addresses of IPv4, and of IPv6.
    everywhere: [bool; 2],
}

impl Policy {
    /// Merges the rules of groups. `visible` returns the cloud of a group, if rules of the
    /// interface's cloud may name the group.
    pub(super) fn new(
        world: &World,
        groups: &[GroupId],
        visible: impl Fn(GroupId) -> Option<VpcId>,
    ) -> Self {
        let side = |egress: bool| {
            let mut merged: BTreeMap<Traffic, Peers> = BTreeMap::new();
            let all = groups.iter().filter_map(|id| world.groups.get(id));
            for rule in all.flat_map(|group| &group.rules).filter(|rule| rule.egress == egress) {
                merged.entry(rule.traffic).or_default().add(world, rule.peer, &visible);
            }
            Side::new(merged.into_iter().collect())
        };
        Self { ingress: side(false), egress: side(true) }
    }

    /// Returns how the flow of an allowed packet is tracked; `None` if the packet is refused.
    /// `cloud` returns the cloud of the other end, if it is known: only groups of this cloud
    /// contain the other end. `automatic`: whether the flow passes a gateway or service whose flows
    /// are always tracked.
    pub(super) fn ask(
        &self,
        members: &Members,
        direction: Direction,
        packet: &Packet,
        cloud: impl Fn() -> Option<VpcId>,
        automatic: bool,
    ) -> Option<Tracking> {
        let (there, back, other) = match direction {
            Direction::Ingress => (&self.ingress, &self.egress, packet.source),
            Direction::Egress => (&self.egress, &self.ingress, packet.destination),
        };
        let mut of_traffic = there.candidates(packet);
        of_traffic.find(|peers| peers.contain(members, other, &cloud))?;
        let open = match packet.inner {
            Inner::Tcp(..) => back.open[family(other) * 2],
            Inner::Udp(..) => back.open[family(other) * 2 + 1],
            _ => return Some(Tracking::OtherProtocol),
        };
        Some(if automatic {
            Tracking::Automatic
        } else if !there.candidates(packet).any(|peers| peers.everywhere[family(other)]) {
            Tracking::RuleIsNarrow
        } else if open {
            Tracking::Untracked
        } else {
            Tracking::AnswersAreNarrow
        })
    }

    /// Returns the groups that rules name.
    pub(super) fn named(&self) -> impl Iterator<Item = GroupId> + '_ {
        let sides = [&self.ingress, &self.egress].into_iter();
        sides
            .flat_map(|side| &side.entries)
            .flat_map(|(_, peers)| peers.groups.iter().map(|(id, _)| *id))
    }

    /// Returns the approximate size of the entries in bytes.
    pub(super) fn bytes(&self) -> usize {
        let sides = [&self.ingress, &self.egress].into_iter();
        let peers = |peers: &Peers| {
            peers.blocks.bytes() + peers.groups.len() * size_of::<(GroupId, VpcId)>()
        };
        let entry = |(_, of): &(Traffic, Peers)| {
            size_of::<(Traffic, Peers)>() + size_of::<u16>() + peers(of)
        };
        sides.flat_map(|side| &side.entries).map(entry).sum()
    }
}

fn family(address: IpAddr) -> usize {
    usize::from(address.is_ipv6())
}

impl Side {
    fn new(entries: Vec<(Traffic, Peers)>) -> Self {
        let addresses: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let open = |family: usize, inner: Inner| {
            let [source, destination] = [addresses[family]; 2];
            let packet = Packet { source, destination, inner };
            entries.iter().any(|(of, peers)| {
                peers.everywhere[family] && traffic::is_all_of_protocol(*of, &packet)
            })
        };
        let (tcp, udp) = (Inner::Tcp(0, 0), Inner::Udp(0, 0));
        let open = [open(0, tcp), open(0, udp), open(1, tcp), open(1, udp)];
        let mut reach: Vec<u16> = Vec::with_capacity(entries.len());
        let mut before = (0, 0);
        for (of, _) in &entries {
            let (protocol, last) = match *of {
                Traffic::Tcp(_, last) => (1, last),
                Traffic::Udp(_, last) => (2, last),
                _ => (0, 0),
            };
            before = if before.0 == protocol {
                (protocol, before.1.max(last))
            } else {
                (protocol, last)
            };
            reach.push(before.1);
        }
        Self { entries, reach, open }
    }

    /// Returns the entries whose traffic includes the packet.
    fn candidates<'a>(&'a self, packet: &'a Packet) -> impl Iterator<Item = &'a Peers> {
        let before = |limit: Traffic| self.entries.partition_point(|(of, _)| *of < limit);
        let all = before(Traffic::Tcp(0, 0));
        let rest = before(Traffic::Icmp(None, None));
        let [from, to] = match packet.inner {
            Inner::Tcp(_, port) => [all, self.last(Traffic::Tcp(port, u16::MAX))],
            Inner::Udp(_, port) => {
                [before(Traffic::Udp(0, 0)), self.last(Traffic::Udp(port, u16::MAX))]
            }
            Inner::Icmp(..) => [rest, rest],
            Inner::Other(_) => [all, rest],
        };
        // Skips the earlier entries that cannot contain the packet's port.
        let skipped = match packet.inner {
            Inner::Tcp(_, port) | Inner::Udp(_, port) => {
                self.reach[from..to].partition_point(|last| *last < port)
            }
            _ => 0,
        };
        let of_ports = &self.entries[from + skipped..to];
        let chain = self.entries[..all].iter().chain(of_ports).chain(&self.entries[rest..]);
        chain.filter(|(of, _)| traffic::is_of(*of, packet)).map(|(_, peers)| peers)
    }

    fn last(&self, limit: Traffic) -> usize {
        self.entries.partition_point(|(of, _)| *of <= limit)
    }
}

impl Peers {
    fn add(&mut self, world: &World, peer: RulePeer, visible: &impl Fn(GroupId) -> Option<VpcId>) {
        match peer {
            RulePeer::Block(block) => {
                if block.prefix_len() == 0 {
                    self.everywhere[family(block.network())] = true;
                }
                self.blocks.add(block);
            }
            RulePeer::List(id) => {
                let list = world.prefix_lists.get(&id);
                list.into_iter().flat_map(|list| &list.entries).for_each(|b| self.blocks.add(*b));
            }
            RulePeer::Group(id) => {
                let group = visible(id).map(|vpc| (id, vpc));
                self.groups.extend(group.filter(|group| !self.groups.contains(group)));
            }
        }
    }

    fn contain(
        &self,
        members: &Members,
        other: IpAddr,
        cloud: &impl Fn() -> Option<VpcId>,
    ) -> bool {
        let has = |id: &GroupId| members.get(id).is_some_and(|set| set.contains(other));
        let mut groups = self.groups.iter().filter(|(id, _)| has(id));
        // Clouds with the same addresses may be peered with one cloud. // V1
        self.blocks.contains(other)
            || groups.any(|(_, vpc)| cloud().is_none_or(|cloud| cloud == *vpc))
    }
}

/// An access control list: the entries of each direction in ascending order of their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AclRules {
    ingress: Vec<(Traffic, IpNet, bool)>,
    egress: Vec<(Traffic, IpNet, bool)>,
}

impl AclRules {
    pub(super) fn new(acl: &Acl) -> Self {
        let side = |egress: bool| {
            let mut all: Vec<_> = acl.entries.iter().filter(|e| e.egress == egress).collect();
            all.sort_by_key(|entry| entry.number);
            all.iter().map(|e| (e.traffic, e.block, e.allow)).collect()
        };
        Self { ingress: side(false), egress: side(true) }
    }

    /// Returns the approximate size of the entries in bytes.
    pub(super) fn bytes(&self) -> usize {
        (self.ingress.len() + self.egress.len()) * size_of::<(Traffic, IpNet, bool)>()
    }

    pub(super) fn allows(&self, direction: Direction, packet: &Packet) -> bool {
        let (entries, other) = match direction {
            Direction::Ingress => (&self.ingress, packet.source),
            Direction::Egress => (&self.egress, packet.destination),
        };
        let mut entries = entries.iter();
        let first = entries.find(|(of, block, allow)| {
            block.contains(&other) && traffic::applies(*of, *allow, packet)
        });
        first.is_some_and(|(.., allow)| *allow)
    }
}
