//! Connections through NAT gateways, and the ports of public addresses that are assigned to them.
//!
//! A port is assigned to at most one connection for each destination (V8). So an address has as
//! many connections to a destination as it has ports. Source: Amazon VPC User Guide, *NAT
//! gateways*: 55,000 connections to each unique destination, and 350 seconds of idle time. A TCP
//! connection that continues after this time gets a reset. Fragments of UDP pass; fragments of TCP
//! and ICMP do not.
//!
//! | module | contents |
//! |---|---|
//! | `expired` | connections that are over, where a new connection needs their port or place |
//! | `error`, `quoted` | ICMP errors about a connection (RFC 5508), and what they quote |
//! | `reset` | the answer to a segment that belongs to no connection |
//! | `stored` | connections as bytes, for a program that takes over |
//!
//! Invariant: the table by private side and the table by public side have the same connections.
//! Bound: [`ENTRIES_MAX`] connections, at most [`ENTRIES_OF_ONE_MAX`] of them for one interface;
//! further connections are refused. If the table is full, a new connection replaces an expired one
//! of its interface, or one of the interface with the most connections, provided that this
//! interface still has more than the new connection's interface. If all tried ports are in use, the
//! same rule is applied to the interfaces with connections to the destination. Each call for a
//! packet does bounded work.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr};

use srd_proto::time::{Duration, Instant};
use srd_vpc::id::{EniId, NatGatewayId};

use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::{protocol, u16_at};
use crate::rewrite::mss;
use crate::track::PacketKind;
use crate::vpc::frames::read::Read;
use crate::vpc::frames::translate;
use crate::vpc::tables::cursors::Cursors;
use crate::vpc::tables::flow::Sender;
use crate::vpc::tables::fragments::{Datagram, Fragments};
pub use crate::vpc::tables::nat_error::NatError;
use crate::vpc::tables::shares::Shares;

/// Largest number of connections of all NAT gateways that one [`Nat`] represents.
pub const ENTRIES_MAX: usize = 1 << 18;
/// Largest number of connections of one interface, so that one guest cannot use up the table.
pub const ENTRIES_OF_ONE_MAX: usize = ENTRIES_MAX / 4;
/// Time without packets after which a connection expires.
pub const IDLE: Duration = Duration::from_secs(350);
/// Largest packet that a NAT gateway carries, in bytes. Source: Amazon VPC User Guide, *NAT gateway
/// basics*; gateways also lower the MSS of TCP connections accordingly.
pub(in crate::vpc) const MTU: u16 = 8500;
/// First port of a public address that may be assigned to connections. The next 55,000 ports,
/// beginning with this port, are used.
const PORT_FIRST: u16 = 10_000;
const PORTS: u16 = 55_000;
/// Number of ports that are tried for a new connection.
const TRIES: u16 = 256;
/// Distance from one tried port to the next. It has no common divisor with the number of ports.
const PORT_STEP: u32 = 857;
/// Number of an interface's connections that are examined if one of them has to be replaced. The
/// connection with the longest silence among them is replaced.
const LOOKED_AT: usize = 8;

/// The private side of a connection: the interface behind the gateway, its address and port, and
/// the remote end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Inside {
    eni: EniId,
    nat: NatGatewayId,
    source: (Ipv4Addr, u16),
    remote: (Ipv4Addr, u16),
    protocol: u8,
}

impl Inside {
    /// The smallest value with which a range of an interface's connections begins.
    fn first(eni: EniId) -> Self {
        let none = (Ipv4Addr::UNSPECIFIED, 0);
        Self { eni, nat: NatGatewayId(0), source: none, remote: none, protocol: 0 }
    }

    fn back(&self, outside: &Outside) -> NatConnection {
        let has_ports = matches!(self.protocol, protocol::TCP | protocol::UDP);
        let port = if has_ports { outside.public.1 } else { 0 };
        NatConnection { nat: self.nat, eni: self.eni, port }
    }
}

/// The public side of a connection: the gateway's address with the assigned port, and the remote
/// end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Outside {
    public: (Ipv4Addr, u16),
    remote: (Ipv4Addr, u16),
    protocol: u8,
}

/// A public address, and a remote end to which it has connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Destination {
    public: Ipv4Addr,
    remote: (Ipv4Addr, u16),
    protocol: u8,
}

impl Outside {
    fn destination(&self) -> Destination {
        let Self { public: (public, _), remote, protocol } = *self;
        Destination { public, remote, protocol }
    }
}

/// Owner of a stored first fragment that has arrived for a gateway: the sender, or, for a fragment
/// from the internet, the interface that receives it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    Sender(Sender),
    Receiver(EniId),
}

/// Connection to which a packet for a gateway's address belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatConnection {
    /// NAT gateway of the connection.
    pub nat: NatGatewayId,
    /// Interface behind the gateway.
    pub eni: EniId,
    /// Port of the gateway to which the packet came; 0 for a protocol without ports.
    pub port: u16,
}

/// Reason for which a packet for a gateway's address was not translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::vpc) enum NotArrived<E> {
    /// The packet belongs to no connection.
    NoConnection,
    /// The packet belongs to a connection of this interface, to which its sender may not send.
    Refused(EniId, E),
}

/// The connections of all NAT gateways of one edge (a host that connects gateways to the network
/// outside of the cloud), or of the private NAT gateways of one host.
#[derive(Debug, Default)]
pub struct Nat {
    by_inside: BTreeMap<Inside, (Outside, Instant)>,
    by_outside: BTreeMap<Outside, Inside>,
    of_one: Shares<EniId>,
    /// Number of connections of each interface to each destination, from each public address.
    to_one: BTreeMap<(Destination, EniId), u16>,
    /// Connection after which the search for expired connections continues.
    swept: Option<Inside>,
    /// For an interface that may not have more connections, the connection that was examined last.
    searched: Cursors<EniId, Inside>,
    /// Connection that was replaced last, after which the search for the next connection to replace
    /// begins.
    gave_way: Option<Inside>,
    /// Distance of the first port that is tried from the interface's own port. Hosts whose gateways
    /// share an address have different distances.
    port_offset: u32,
    /// Ports that may be assigned.
    part: Part,
    /// First fragments that have left, with the source address that was written into them.
    leaving: Fragments<Ipv4Addr, EniId, (EniId, Datagram)>,
    /// First fragments that have arrived, from an interface or from the internet, with their
    /// connection, and the private address of the interface that receives them.
    arriving: Fragments<(NatConnection, Ipv4Addr), End, (Option<Sender>, Datagram)>,
}

/// A part of the ports of a gateway: of each `parts` successive ports, the one with the index
/// `part`. The workers of a host, whose gateways share their addresses, have different parts.
#[derive(Clone, Copy, Debug)]
struct Part {
    part: u8,
    parts: u8,
}

impl Default for Part {
    fn default() -> Self {
        Self { part: 0, parts: 1 }
    }
}

impl Part {
    /// Returns the port of this part that is next to the port with this index, which is less than
    /// [`PORTS`].
    fn port(self, index: u32) -> u16 {
        let parts = u32::from(self.parts.max(1));
        let own = index - index % parts + u32::from(self.part);
        let own = if own < u32::from(PORTS) { own } else { own - parts };
        PORT_FIRST + u16::try_from(own).unwrap_or(0)
    }
}

/// Returns the part of a gateway's ports, of `parts` parts, to which the port belongs that a frame
/// is for; `None` if the frame contains no such port.
pub(in crate::vpc) fn part_of(frame: &[u8], parts: u8) -> Option<u8> {
    let read = Read::frame(frame)?;
    let bytes = &frame[OFFLOAD_BYTES..];
    let port = if quoted::is_error(&read.packet, bytes) {
        quoted::Quoted::of(&read, bytes)?.source.1
    } else if read.packet.first {
        ports(&read, bytes)?.ports.1
    } else {
        return None;
    };
    let part = port.checked_sub(PORT_FIRST)? % u16::from(parts.max(1));
    u8::try_from(part).ok()
}

/// Ports of a packet, and the offsets of the fields in which a gateway writes a port: `source_at`
/// for a packet that leaves, `destination_at` for an answer that arrives. An ICMP echo has its
/// identifier as both ports.
struct Ports {
    ports: (u16, u16),
    source_at: usize,
    destination_at: usize,
    checksum_at: usize,
}

fn ports(read: &Read, bytes: &[u8]) -> Option<Ports> {
    let at = read.packet.transport_at;
    match (read.packet.protocol, read.packet.ports_in_sight(bytes)) {
        (protocol::TCP, Some(ports)) if bytes.len() >= at + 18 => {
            Some(Ports { ports, source_at: at, destination_at: at + 2, checksum_at: at + 16 })
        }
        (protocol::UDP, Some(ports)) => {
            Some(Ports { ports, source_at: at, destination_at: at + 2, checksum_at: at + 6 })
        }
        (protocol::ICMP, None) if bytes.len() >= at + 8 => {
            let is_echo = matches!(bytes[at], 0 | 8);
            let id = u16_at(bytes, at + 4);
            is_echo.then_some(Ports {
                ports: (id, id),
                source_at: at + 4,
                destination_at: at + 4,
                checksum_at: at + 2,
            })
        }
        _ => None,
    }
}

/// Returns the remote end of a connection. For an ICMP echo, the port is zero.
fn remote(address: Ipv4Addr, port: u16, number: u8) -> (Ipv4Addr, u16) {
    (address, if number == protocol::ICMP { 0 } else { port })
}

impl Nat {
    /// Creates the gateways of a host that share their addresses with gateways of other hosts.
    pub(in crate::vpc) fn of_host(host: &str) -> Self {
        let hash = host
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self { port_offset: hash % u32::from(PORTS), ..Self::default() }
    }

    /// Returns these gateways with the port offset and the ports of `other`.
    pub(in crate::vpc) fn like(self, other: &Self) -> Self {
        Self { port_offset: other.port_offset, part: other.part, ..self }
    }

    /// Restricts the ports of new connections to one of `parts` parts.
    pub(in crate::vpc) fn restrict(&mut self, part: u8, parts: u8) {
        self.part = Part { part, parts };
    }

    /// Number of connections of all gateways.
    pub fn len(&self) -> usize {
        self.by_inside.len()
    }

    /// Whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.by_inside.is_empty()
    }

    /// Writes the public source address and port into a frame of interface `eni` that leaves
    /// through a gateway.
    ///
    /// # Errors
    /// [`NatError`] if the gateway does not translate the frame. The frame is unchanged, and the
    /// caller must drop it.
    pub fn leave(
        &mut self,
        now: Instant,
        nat: NatGatewayId,
        public: Ipv4Addr,
        eni: EniId,
        frame: &mut [u8],
    ) -> Result<(), NatError> {
        let read = Read::frame(frame).ok_or(NatError::Protocol)?;
        let bytes = &mut frame[OFFLOAD_BYTES..];
        let (IpAddr::V4(source), IpAddr::V4(destination)) =
            (read.packet.source, read.packet.destination)
        else {
            return Err(NatError::Protocol);
        };
        let number = read.packet.protocol;
        let datagram = Datagram::of(&read.packet, bytes).map(|datagram| (eni, datagram));
        if let Some(datagram) = datagram {
            if number != protocol::UDP {
                return Err(NatError::Fragment);
            }
            if !read.packet.first {
                let left = self.leaving.get(now, &datagram).filter(|left| *left == public);
                left.ok_or(NatError::Fragment)?;
                translate::write(bytes, &read.layout, translate::SOURCE_AT, public);
                return Ok(());
            }
        }
        if quoted::is_error(&read.packet, bytes) {
            return self.error_leaves(now, (nat, eni, public), &read, bytes);
        }
        let found = ports(&read, bytes).ok_or(NatError::Protocol)?;
        let remote = remote(destination, found.ports.1, number);
        let inside = Inside { nat, eni, source: (source, found.ports.0), remote, protocol: number };
        let seen = PacketKind::of(&read.packet, bytes);
        let begins = !matches!(seen, PacketKind::Tcp(_)) || seen.opens();
        let outside = self.outside(now, inside, public, begins)?;
        if let Some(datagram) = datagram {
            self.leaving.put(now, eni, datagram, public);
        }
        translate::write(bytes, &read.layout, translate::SOURCE_AT, public);
        let port = outside.public.1;
        translate::write_port(bytes, &read.layout, found.source_at, found.checksum_at, port);
        mss::clamp(bytes, &read.layout, MTU);
        Ok(())
    }

    /// Writes the private destination address and port into a frame that arrives from the internet
    /// for a gateway's address. Returns the frame's connection; `None` if the frame belongs to no
    /// connection.
    pub fn arrive(&mut self, now: Instant, frame: &mut [u8]) -> Option<NatConnection> {
        self.arrive_from(now, None, frame, |_, _| Ok::<(), ()>(())).ok()
    }

    /// Writes the private destination address and port into a frame for a gateway's address. `from`
    /// is the interface that sends the frame, or `None` for the internet. `may_send` decides
    /// whether the sender may send a packet with a source address to the interface of the
    /// connection. Returns the frame's connection.
    ///
    /// # Errors
    /// The frame belongs to no connection, or the error of `may_send`. The frame is unchanged, and
    /// so are the connections, because a sender must not change connections of others. // V6
    pub(in crate::vpc) fn arrive_from<E: Copy>(
        &mut self,
        now: Instant,
        from: Option<&Sender>,
        frame: &mut [u8],
        may_send: impl FnOnce(EniId, IpAddr) -> Result<(), E>,
    ) -> Result<NatConnection, NotArrived<E>> {
        let none = NotArrived::NoConnection;
        let read = if from.is_some() { Read::frame(frame) } else { Read::arriving(frame) };
        let read = read.ok_or(none)?;
        let bytes = &mut frame[OFFLOAD_BYTES..];
        let (IpAddr::V4(source), IpAddr::V4(public)) =
            (read.packet.source, read.packet.destination)
        else {
            return Err(none);
        };
        let may_send = |eni: EniId| {
            may_send(eni, read.packet.source).map_err(|cause| NotArrived::Refused(eni, cause))
        };
        let number = read.packet.protocol;
        let datagram = Datagram::of(&read.packet, bytes).map(|datagram| (from.cloned(), datagram));
        if let Some(datagram) = &datagram {
            if number != protocol::UDP {
                return Err(none);
            }
            if !read.packet.first {
                let (back, address) = self.arriving.get(now, datagram).ok_or(none)?;
                may_send(back.eni)?;
                translate::write(bytes, &read.layout, translate::DESTINATION_AT, address);
                return Ok(back);
            }
        }
        if quoted::is_error(&read.packet, bytes) {
            return self.error_arrives(now, public, &read, bytes, may_send);
        }
        let found = ports(&read, bytes).ok_or(none)?;
        let remote = remote(source, found.ports.0, number);
        let outside = Outside { public: (public, found.ports.1), remote, protocol: number };
        let inside = *self.by_outside.get(&outside).ok_or(none)?;
        let entry = self.by_inside.get_mut(&inside).ok_or(none)?;
        if entry.1 + IDLE <= now {
            self.forget(inside);
            return Err(none);
        }
        may_send(inside.eni)?;
        entry.1 = now;
        let (address, port) = inside.source;
        let back = inside.back(&outside);
        if let Some(datagram) = datagram {
            let owner = from.map_or(End::Receiver(back.eni), |from| End::Sender(from.clone()));
            self.arriving.put(now, owner, datagram, (back, address));
        }
        translate::write(bytes, &read.layout, translate::DESTINATION_AT, address);
        translate::write_port(bytes, &read.layout, found.destination_at, found.checksum_at, port);
        mss::clamp(bytes, &read.layout, MTU);
        Ok(back)
    }

    /// Returns the public side of a connection. If there is no such connection, it is created,
    /// provided that the packet may begin one (`begins`).
    fn outside(
        &mut self,
        now: Instant,
        inside: Inside,
        public: Ipv4Addr,
        begins: bool,
    ) -> Result<Outside, NatError> {
        if let Some((outside, used_at)) = self.by_inside.get_mut(&inside)
            && outside.public.0 == public
            && now < *used_at + IDLE
        {
            *used_at = now;
            return Ok(*outside);
        }
        self.forget(inside);
        if !begins {
            return Err(NatError::NoConnection);
        }
        self.sweep(now);
        let has_most = self.of_one.get(&inside.eni) >= ENTRIES_OF_ONE_MAX;
        if has_most && !self.forget_one_of(now, inside.eni) {
            return Err(NatError::NoPort);
        }
        let Inside { source, remote, protocol, .. } = inside;
        // The guest's own port is preferred, for programs that depend on their port.
        let first = u32::from(source.1.wrapping_sub(PORT_FIRST)) + self.port_offset;
        let port = |step: u16| (first + u32::from(step) * PORT_STEP) % u32::from(PORTS);
        let part = self.part;
        let tried = (0..TRIES).map(|step| part.port(port(step)));
        let mut all = tried.map(|port| Outside { public: (public, port), remote, protocol });
        let has = |outside: &Outside| self.by_outside.get(outside);
        let free =
            all.clone().find(|outside| has(outside).is_none_or(|inside| self.is_over(now, inside)));
        // V8: NAT gateway
        let outside = match free {
            Some(free) => free,
            None => self.of_the_greatest(inside.eni, &mut all).ok_or(NatError::NoPort)?,
        };
        if let Some(other) = self.by_outside.get(&outside).copied() {
            self.forget(other);
        } else if self.by_inside.len() >= ENTRIES_MAX && !self.forget_one_of(now, inside.eni) {
            let most = self.of_one.gives_way_to(&inside.eni).copied();
            self.give_way(most.ok_or(NatError::NoPort)?);
        }
        self.know(inside, outside, now);
        Ok(outside)
    }

    fn know(&mut self, inside: Inside, outside: Outside, now: Instant) {
        self.by_outside.insert(outside, inside);
        self.by_inside.insert(inside, (outside, now));
        self.of_one.add(&inside.eni);
        *self.to_one.entry((outside.destination(), inside.eni)).or_default() += 1;
    }

    /// Selects one of the tried ports, all of which are in use, for a new connection of `eni`. The
    /// port is taken from the interface with the most connections to the destination, provided that
    /// this interface still has more than `eni` afterwards. Among the interface's ports, the one
    /// with the longest silence is selected. Returns `None` if no port may be taken.
    fn of_the_greatest(
        &self,
        eni: EniId,
        tried: &mut dyn Iterator<Item = Outside>,
    ) -> Option<Outside> {
        let count = |outside: &Outside, eni| {
            let count = self.to_one.get(&(outside.destination(), eni));
            count.copied().unwrap_or_default()
        };
        let taken = tried.filter_map(|outside| {
            let inside = self.by_outside.get(&outside)?;
            let (_, used_at) = self.by_inside.get(inside)?;
            let has_more = count(&outside, inside.eni) > count(&outside, eni) + 1;
            let rank = (count(&outside, inside.eni), Reverse(*used_at));
            has_more.then_some((rank, outside))
        });
        taken.max_by_key(|(rank, _)| *rank).map(|(_, outside)| outside)
    }

    /// Removes one connection of an interface, preferably one that has been silent for long.
    fn give_way(&mut self, eni: EniId) {
        use core::ops::Bound::{Excluded, Included, Unbounded};
        let first = Inside::first(eni);
        let last = self.gave_way.filter(|last| last.eni == eni);
        let behind = last.map_or(Included(first), Excluded);
        let of = |from| {
            let all = self.by_inside.range((from, Unbounded));
            all.take_while(move |(inside, _)| inside.eni == eni)
        };
        let looked_at = of(behind).chain(of(Included(first))).take(LOOKED_AT);
        let oldest = looked_at.min_by_key(|(_, (_, used_at))| *used_at);
        if let Some(oldest) = oldest.map(|(inside, _)| *inside) {
            self.gave_way = Some(oldest);
            self.forget(oldest);
        }
    }

    /// Removes the connections of gateways that are not in `publics`, or have a different address
    /// there, so that no answer passes a gateway that was removed (V4).
    pub fn keep(&mut self, publics: &BTreeMap<NatGatewayId, Ipv4Addr>) {
        let over = |inside: &Inside, outside: &Outside| {
            publics.get(&inside.nat) != Some(&outside.public.0)
        };
        let all = self.by_inside.iter();
        let gone = all.filter(|(inside, (outside, _))| over(inside, outside));
        let gone: alloc::vec::Vec<Inside> = gone.map(|(inside, _)| *inside).collect();
        gone.into_iter().for_each(|inside| self.forget(inside));
    }

    fn forget(&mut self, inside: Inside) {
        if let Some((outside, _)) = self.by_inside.remove(&inside) {
            self.by_outside.remove(&outside);
            self.of_one.remove(&inside.eni);
            if let Entry::Occupied(mut count) =
                self.to_one.entry((outside.destination(), inside.eni))
            {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

mod error;
mod expired;
mod quoted;
mod reset;
mod stored;
#[cfg(test)]
mod tests;

pub(in crate::vpc) use quoted::{End as QuotedEnd, readdress};
pub use reset::reset;
