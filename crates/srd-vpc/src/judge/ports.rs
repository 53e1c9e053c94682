//! Ports with which a connection works. Access control lists are stateless, so answers pass only to
//! ports that the lists allow. The port that a client or a NAT gateway will choose is not known
//! beforehand.
//!
//! The ports that lists name divide a range into parts. All ports of one part have the same
//! verdict, so one port of each part is evaluated.

use super::connection::{Connection, connection_by_port};
use super::step::{Origin, Step, Translator};
use crate::id::NatGatewayId;
use crate::object::{Acl, AclEntry, Traffic, World};
use crate::packet::{Inner, Packet};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Source ports that a NAT gateway uses. Source: *Ephemeral ports* in Amazon's VPC guide.
pub const NAT_PORTS: (u16, u16) = (1024, u16::MAX);
/// Source ports that clients in the internet use, on any operating system or behind a NAT gateway.
pub const INTERNET_PORTS: (u16, u16) = (1024, u16::MAX);
/// Source ports that clients under Linux use (`net.ipv4.ip_local_port_range`).
pub const LINUX_PORTS: (u16, u16) = (32_768, 60_999);

/// Owner of the port to which answers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortOf {
    /// The end that opens the connection.
    Client,
    /// A NAT gateway on the path.
    Nat(NatGatewayId),
}

/// The ports with which a connection works, if it works with some of the ports that the client or a
/// NAT gateway may choose, and not with all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The client or the NAT gateway that chooses the port.
    pub of: PortOf,
    /// First and last of the ports that the client or the NAT gateway may choose.
    pub wanted: (u16, u16),
    /// Ranges of ports (first, last) with which the connection works, in ascending order: some of
    /// `wanted`, not all.
    pub works: Vec<(u16, u16)>,
}

/// Result of a connection for all ports that its client and its NAT gateway may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The connection with one port: a port with which it works, if such a port exists.
    pub connection: Connection,
    /// Ports on which the result depends; empty if the connection works with all ports or with
    /// none.
    pub conditions: Vec<Condition>,
}

/// Evaluates a connection for all source ports that its client and a NAT gateway on the path may
/// choose. `client`: first and last port that the client may use, including the packet's port;
/// `None`: the packet's port only.
pub fn explain(
    world: &World,
    origin: Origin,
    packet: &Packet,
    client: Option<(u16, u16)>,
) -> Explained {
    let own = packet.source_port();
    let first = connection_by_port(world, origin, packet, own);
    let Some(port) = own else { return Explained { connection: first, conditions: Vec::new() } };
    let nat = first.first.steps.iter().find_map(|step| match step {
        Step::Source4 { by: Translator::NatGateway(id), .. } => Some(*id),
        _ => None,
    });
    let lists: Vec<&Acl> = world.acls.values().collect();
    let client = client.unwrap_or((port, port));
    let at = |client_port: u16, nat_port: u16| {
        let packet = from_port(packet, client_port);
        connection_by_port(world, origin, &packet, Some(nat_port))
    };
    // Different lists check the client's port and the gateway's port. So each port is varied while
    // the other one has a value that passes.
    let nat_wanted = if nat.is_some() { NAT_PORTS } else { client };
    let mut good = (port, if nat.is_some() { port.max(NAT_PORTS.0) } else { port });
    if !at(good.0, good.1).works() {
        let clients = parts(&lists, packet, client);
        let nats = if nat.is_some() { parts(&lists, packet, nat_wanted) } else { Vec::new() };
        let all = clients.iter().flat_map(|(client, _)| match nat {
            Some(_) => nats.iter().map(|(nat, _)| (*client, *nat)).collect::<Vec<_>>(),
            None => alloc::vec![(*client, *client)],
        });
        let mut all = all;
        match all.find(|(client, nat)| at(*client, *nat).works()) {
            Some(found) => good = found,
            None => return Explained { connection: first, conditions: Vec::new() },
        }
    }
    let mut conditions = Vec::new();
    let of_client = |port: u16| at(port, if nat.is_some() { good.1 } else { port }).works();
    conditions.extend(condition(&lists, packet, PortOf::Client, client, of_client));
    if let Some(id) = nat {
        let of_nat = |port: u16| at(good.0, port).works();
        conditions.extend(condition(&lists, packet, PortOf::Nat(id), NAT_PORTS, of_nat));
    }
    Explained { connection: at(good.0, good.1), conditions }
}

fn condition(
    lists: &[&Acl],
    packet: &Packet,
    of: PortOf,
    wanted: (u16, u16),
    works: impl Fn(u16) -> bool,
) -> Option<Condition> {
    let good = parts(lists, packet, wanted).into_iter().filter(|(first, _)| works(*first));
    let works = merged(good);
    (works != [wanted]).then_some(Condition { of, wanted, works })
}

/// Merges adjacent ranges.
fn merged(parts: impl Iterator<Item = (u16, u16)>) -> Vec<(u16, u16)> {
    let mut all: Vec<(u16, u16)> = Vec::new();
    for (first, last) in parts {
        match all.last_mut() {
            Some(before) if before.1.checked_add(1) == Some(first) => before.1 = last,
            _ => all.push((first, last)),
        }
    }
    all
}

fn from_port(packet: &Packet, port: u16) -> Packet {
    let inner = match packet.inner {
        Inner::Tcp(_, to) => Inner::Tcp(port, to),
        Inner::Udp(_, to) => Inner::Udp(port, to),
        other => other,
    };
    Packet { inner, ..*packet }
}

/// Divides a range of ports into parts. Within a part, every list decides equally for all ports of
/// the packet's protocol.
fn parts(lists: &[&Acl], packet: &Packet, (first, last): (u16, u16)) -> Vec<(u16, u16)> {
    let mut begins = BTreeSet::from([first]);
    for entry in lists.iter().flat_map(|list| &list.entries) {
        let Some((from, to)) = ports(entry, packet) else { continue };
        begins.extend([Some(from), to.checked_add(1)].into_iter().flatten());
    }
    let within: Vec<u16> = begins.into_iter().filter(|at| (first..=last).contains(at)).collect();
    let ends = within.iter().skip(1).map(|next| next - 1).chain([last]);
    within.iter().copied().zip(ends).collect()
}

fn ports(entry: &AclEntry, packet: &Packet) -> Option<(u16, u16)> {
    match (entry.traffic, packet.inner) {
        (Traffic::Tcp(first, last), Inner::Tcp(..))
        | (Traffic::Udp(first, last), Inner::Udp(..)) => Some((first, last)),
        _ => None,
    }
}

/// Returns the ranges of ports within `wanted` to which an access control list admits answers;
/// `None` if the list admits all of these ports or none. `packet` is an answer; its destination
/// port is ignored.
pub fn partly_admitted(
    acl: &Acl,
    egress: bool,
    packet: &Packet,
    wanted: (u16, u16),
) -> Option<Vec<(u16, u16)>> {
    let direction = match egress {
        true => super::groups::Direction::Egress,
        false => super::groups::Direction::Ingress,
    };
    let passes = |port: u16| super::acl::first_match(acl, direction, &packet.to_port(port)).1;
    let good = parts(&[acl], packet, wanted).into_iter().filter(|(first, _)| passes(*first));
    let good = merged(good);
    (!good.is_empty() && good != [wanted]).then_some(good)
}

impl Explained {
    /// Whether the connection works with all possible ports.
    pub fn works(&self) -> bool {
        self.connection.works() && self.conditions.is_empty()
    }

    /// Whether the connection works with some ports, but not with all.
    pub fn works_for_part(&self) -> bool {
        self.connection.works() && !self.conditions.is_empty()
    }
}
