//! The addresses of this machine itself. The card writes no packet of an instance to the device
//! through which instances reach the internet, if the packet's destination is one of these
//! addresses, whatever packet rules the machine has at that moment. There are two exceptions: the
//! address of this machine on that device ([`OWN`]), and answers in connections that a program of
//! this machine has opened.
//!
//! The packet rules of [`crate::machine::edge`] protect the machine in the same way, with the same
//! exceptions. But the reload of a firewall removes all packet rules of a machine for a moment.
//!
//! ```text
//!  kernel's table `local` --> a thread reads it into ranges, and increases their version
//!                         --> the card's loop copies the ranges when their version has changed
//! ```
//!
//! The thread reads the table at each change of an address, and every [`LOOK_EVERY_S`] seconds,
//! because other programs may add local routes without an address. It ends after the [`Own`] that
//! started it has been dropped.
//!
//! Bound: [`CONVERSATIONS_MAX`] connections. When a packet of a connection is recorded, the
//! connection that has been idle longest is removed if it was idle for [`KEPT`], or if there are
//! too many.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration as WallDuration;

use anyhow::{Context, Result};
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use srd_card::packet::{Packet, protocol};
use srd_proto::time::{Duration, Instant};

/// This machine's own address on the internet's side. It is reserved for documentation, because the
/// internet's side carries no private addresses.
pub(crate) const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// Time in seconds between two reads of the kernel's table of local addresses, while no address
/// changes.
const LOOK_EVERY_S: i64 = 1;
/// Maximum number of recorded connections between instances and the addresses of this machine other
/// than [`OWN`].
const CONVERSATIONS_MAX: usize = 4096;
/// Idle time after which a connection may be replaced by another connection.
const KEPT: Duration = Duration::from_secs(3600);
/// Longest wait for an answer of the kernel, which usually answers at once.
const ANSWER_WAIT_MAX: WallDuration = WallDuration::from_secs(5);
/// The kernel's group of changes of IPv4 addresses (`RTNLGRP_IPV4_IFADDR`).
const ADDRESSES_GROUP: u32 = 5;
/// The kernel's table of local addresses (`RT_TABLE_LOCAL`).
const LOCAL_TABLE: u8 = 255;
/// Maximum number of routes in one answer of the kernel.
const ROUTES_MAX: usize = 1 << 20;

/// Sorted ranges of addresses that neither overlap nor touch: first and last address of each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    fn of(prefixes: impl IntoIterator<Item = (Ipv4Addr, u8)>) -> Self {
        let range = |(address, length): (Ipv4Addr, u8)| {
            let others = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            (address.to_bits() & !others, address.to_bits() | others)
        };
        let mut all: Vec<(u32, u32)> = prefixes.into_iter().map(range).collect();
        all.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (first, last) in all {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    fn has(&self, address: Ipv4Addr) -> bool {
        let bits = address.to_bits();
        let behind = self.0.partition_point(|(first, _)| *first <= bits);
        behind.checked_sub(1).is_some_and(|at| self.0[at].1 >= bits)
    }
}

/// The ranges of local addresses that the thread has read last, shared with the card's loop.
#[derive(Debug, Default)]
struct Shared {
    /// Version of `ranges`, which increases with each change.
    number: AtomicU64,
    ranges: Mutex<Arc<Ranges>>,
}

impl Shared {
    fn set(&self, ranges: Ranges) {
        let mut now = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if **now != ranges {
            *now = Arc::new(ranges);
            self.number.fetch_add(1, Ordering::Release);
        }
    }
}

/// A connection of this machine: the protocol, the address and port of this machine, and the
/// address and port of the other end.
type Conversation = (u8, (Ipv4Addr, u16), (Ipv4Addr, u16));

/// The loop's copy of the local addresses, and the connections of programs of this machine with
/// instances.
#[derive(Debug)]
pub(crate) struct Own {
    shared: Arc<Shared>,
    number: u64,
    ranges: Arc<Ranges>,
    conversations: BTreeMap<Conversation, Instant>,
    /// Connections in the order of their last packets.
    order: BTreeSet<(Instant, Conversation)>,
}

impl Own {
    /// Reads the addresses, and starts a thread that follows their changes.
    ///
    /// # Errors
    /// The kernel's table cannot be read, or the thread cannot be started.
    pub(crate) fn start() -> Result<Self> {
        let failed = "the addresses of this machine, which instances may not reach";
        let mut table = Table::open().context(failed)?;
        let shared = Arc::<Shared>::default();
        shared.set(table.read().context(failed)?);
        let weak = Arc::downgrade(&shared);
        let follow = move || follow(table, &weak);
        thread::Builder::new().name("srd-card-own".into()).spawn(follow).context(failed)?;
        Ok(Self::with(shared))
    }

    fn with(shared: Arc<Shared>) -> Self {
        let (conversations, order) = (BTreeMap::new(), BTreeSet::new());
        let mut own = Self { shared, number: 0, ranges: Arc::default(), conversations, order };
        own.look();
        own
    }

    /// Copies the ranges that the thread has read last, if they have changed.
    fn look(&mut self) {
        let number = self.shared.number.load(Ordering::Acquire);
        if number != self.number {
            let ranges = self.shared.ranges.lock().unwrap_or_else(PoisonError::into_inner);
            (self.number, self.ranges) = (number, Arc::clone(&ranges));
        }
    }

    fn is_guarded(&mut self, address: Ipv4Addr) -> bool {
        self.look();
        address != OWN && self.ranges.has(address)
    }

    /// Records the connection of a packet to an instance, if the packet comes from a protected
    /// address of this machine. A program of this machine then waits for answers at this address.
    pub(crate) fn arrives(&mut self, now: Instant, packet: &Packet, bytes: &[u8]) {
        let IpAddr::V4(source) = packet.source else { return };
        if !self.is_guarded(source) {
            return;
        }
        let Some((protocol, own, other)) = ends(packet, bytes) else { return };
        self.note(now, (protocol, own, other));
    }

    fn note(&mut self, now: Instant, of: Conversation) {
        if let Some(before) = self.conversations.insert(of, now) {
            self.order.remove(&(before, of));
        }
        self.order.insert((now, of));
        let oldest = self.order.first().copied();
        let is_idle = oldest.is_some_and(|(at, _)| at + KEPT <= now);
        if (is_idle || self.conversations.len() > CONVERSATIONS_MAX)
            && let Some((at, of)) = oldest
        {
            self.order.remove(&(at, of));
            self.conversations.remove(&of);
        }
    }

    /// Whether a packet of an instance is for this machine itself, and no answer in a connection
    /// that a program of this machine has opened. `bytes`: the packet from its IP header on.
    pub(crate) fn refuses(&mut self, now: Instant, bytes: &[u8]) -> bool {
        // A packet that cannot be parsed has no destination to check.
        let Some(packet) = Packet::read(bytes) else { return true };
        let IpAddr::V4(destination) = packet.destination else { return false };
        if !self.is_guarded(destination) {
            return false;
        }
        let answered = match quoted(&packet, bytes) {
            Some(inner) => Packet::read(inner).and_then(|packet| ends(&packet, inner)),
            None => ends(&packet, bytes).map(|(protocol, from, to)| (protocol, to, from)),
        };
        let known = answered.filter(|of| self.conversations.contains_key(of));
        known.into_iter().for_each(|of| self.note(now, of));
        known.is_none()
    }
}

/// Returns the protocol of a packet, its source and its destination. An ICMP echo has its
/// identifier in place of both ports. Returns `None` for a later fragment, which has no ports.
fn ends(packet: &Packet, bytes: &[u8]) -> Option<Conversation> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (packet.source, packet.destination) else {
        return None;
    };
    if !packet.first {
        return None;
    }
    let ports = match packet.protocol {
        protocol::TCP | protocol::UDP => packet.ports?,
        protocol::ICMP => {
            let header: &[u8; 6] = bytes.get(packet.transport_at..)?.first_chunk()?;
            let id = u16::from_be_bytes([header[4], header[5]]);
            matches!(header[0], 0 | 8).then_some((id, id))?
        }
        _ => (0, 0),
    };
    Some((packet.protocol, (from, ports.0), (to, ports.1)))
}

/// Returns the packet that an ICMP error quotes; `None` if the packet is no ICMP error.
fn quoted<'a>(packet: &Packet, bytes: &'a [u8]) -> Option<&'a [u8]> {
    /// Size of the header of an ICMP error in bytes.
    const HEADER_BYTES: usize = 8;
    let transport = bytes.get(packet.transport_at..)?;
    let is_error = packet.protocol == protocol::ICMP
        && packet.first
        && matches!(transport.first(), Some(3 | 11 | 12));
    transport.get(HEADER_BYTES..).filter(|_| is_error)
}

/// Reads the local addresses again after each change, until the loop does not need them any more.
fn follow(mut table: Table, shared: &Weak<Shared>) {
    let mut is_broken = false;
    loop {
        table.wait();
        let Some(shared) = shared.upgrade() else { return };
        match table.read() {
            Ok(ranges) => {
                shared.set(ranges);
                is_broken = false;
            }
            Err(error) if !is_broken => {
                is_broken = true;
                tracing::error!(
                    "the addresses of this machine cannot be read: {error}; instances do not \
                     reach those that it had, and others are closed by packet rules only"
                );
            }
            Err(_) => {}
        }
    }
}

/// The kernel's table of addresses that are delivered on this machine.
struct Table {
    questions: Socket,
    changes: Socket,
    sequence: u32,
}

impl Table {
    fn open() -> std::io::Result<Self> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            Ok::<_, std::io::Error>(socket)
        };
        let (changes, questions) = (open()?, open()?);
        changes.add_membership(ADDRESSES_GROUP)?;
        changes.set_non_blocking(true)?;
        questions.connect(&SocketAddr::new(0, 0))?;
        // The kernel filters its answer, because a router has a million routes in other tables.
        questions.set_netlink_get_strict_chk(true)?;
        let timeout = rustix::net::sockopt::Timeout::Recv;
        rustix::net::sockopt::set_socket_timeout(&questions, timeout, Some(ANSWER_WAIT_MAX))?;
        Ok(Self { questions, changes, sequence: 0 })
    }

    /// Waits for a change of an address, or until the next regular read.
    fn wait(&mut self) {
        let mut fds = [PollFd::new(&self.changes, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: LOOK_EVERY_S, tv_nsec: 0 }));
        // The content of notices is ignored, because the table is read in any case.
        while self.changes.recv_from_full().is_ok() {}
    }

    fn read(&mut self) -> std::io::Result<Ranges> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut filter = RouteMessage::default();
        filter.header.address_family = AddressFamily::Inet;
        filter.header.table = LOCAL_TABLE;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        header.sequence_number = self.sequence;
        let payload = NetlinkPayload::InnerMessage(Message::GetRoute(filter));
        let mut packet = NetlinkMessage::new(header, payload);
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.questions.send(&bytes, 0)?;
        let mut found = Vec::new();
        loop {
            let bytes = match self.questions.recv_from_full() {
                Ok((bytes, _)) => bytes,
                // This process was stopped and continued.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut rest = &bytes[..];
            while rest.len() >= 16 {
                let message = NetlinkMessage::<Message>::deserialize(rest)
                    .map_err(|error| std::io::Error::other(format!("an answer: {error}")))?;
                let length = usize::try_from(message.header.length).unwrap_or(0);
                rest = rest.get(length.next_multiple_of(4).max(16)..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                if let Some(all) = take(message.payload, &mut found) {
                    return all;
                }
                if found.len() > ROUTES_MAX {
                    return Err(std::io::Error::other("too many local addresses"));
                }
            }
        }
    }
}

/// Takes a message of the kernel's answer. Returns the ranges, or an error, at the end of the
/// answer.
fn take(
    payload: NetlinkPayload<Message>,
    found: &mut Vec<(Ipv4Addr, u8)>,
) -> Option<std::io::Result<Ranges>> {
    let error = match payload {
        // The kernel may begin an answer, and then report an error.
        NetlinkPayload::Done(done) if done.code < 0 => {
            std::io::Error::from_raw_os_error(done.code.saturating_neg())
        }
        NetlinkPayload::Done(_) => return Some(Ok(Ranges::of(std::mem::take(found)))),
        NetlinkPayload::Error(error) => error.to_io(),
        NetlinkPayload::InnerMessage(Message::NewRoute(route)) => {
            found.extend(prefix(&route));
            return None;
        }
        _ => return None,
    };
    // A network without any address has no such table.
    let is_absent = error.raw_os_error() == Some(Errno::NOENT.raw_os_error());
    Some(if is_absent { Ok(Ranges::default()) } else { Err(error) })
}

/// Returns the destination of a route, if the route is in the table of local addresses.
fn prefix(route: &RouteMessage) -> Option<(Ipv4Addr, u8)> {
    let is_local = route.header.table == LOCAL_TABLE;
    let address = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(*address),
        _ => None,
    });
    let length = route.header.destination_prefix_length;
    address.filter(|_| is_local && length <= 32).map(|address| (address, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const INSTANCE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);

    fn own(prefixes: &[(Ipv4Addr, u8)]) -> Own {
        let shared = Arc::<Shared>::default();
        shared.set(Ranges::of(prefixes.iter().copied()));
        Own::with(shared)
    }

    /// Returns an IPv4 packet with the payload `behind`.
    fn packet(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        bytes.extend(from.octets());
        bytes.extend(to.octets());
        bytes.extend(behind);
        let length = u16::try_from(bytes.len()).unwrap();
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    fn tcp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
        let mut segment = [0; 20];
        segment[..2].copy_from_slice(&from.1.to_be_bytes());
        segment[2..4].copy_from_slice(&to.1.to_be_bytes());
        segment[12] = 0x50;
        packet(protocol::TCP, from.0, to.0, &segment)
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// In an earlier version the addresses that the kernel had not listed were no longer guarded.
    #[test]
    fn regression_a_list_that_ends_with_an_error_is_not_taken_for_complete() {
        let end = |code| {
            let mut done = netlink_packet_core::DoneMessage::default();
            done.code = code;
            take(NetlinkPayload::Done(done), &mut vec![(HOST, 32)]).unwrap()
        };
        assert!(end(0).unwrap().has(HOST));
        assert_eq!(end(-105).unwrap_err().raw_os_error(), Some(105), "ENOBUFS");
        assert!(!end(-2).unwrap().has(HOST), "ENOENT: there is no such table");
    }

    #[test]
    fn ranges_have_the_addresses_of_their_prefixes_and_no_others() {
        let all = [("127.0.0.0", 8), ("192.0.2.1", 32), ("192.0.2.255", 32), ("192.0.2.0", 31)];
        let ranges = Ranges::of(all.map(|(address, length)| (address.parse().unwrap(), length)));
        let has = |address: &str| ranges.has(address.parse().unwrap());
        assert!(["127.0.0.0", "127.255.255.255", "192.0.2.0", "192.0.2.1"].into_iter().all(has));
        assert!(has("192.0.2.255"));
        let others = ["126.255.255.255", "128.0.0.0", "192.0.2.2", "0.0.0.0", "255.255.255.255"];
        assert!(!others.into_iter().any(has));
        assert!(!Ranges::default().has(HOST));
        assert!(Ranges::of([(HOST, 0)]).has(INSTANCE), "all of them");
    }

    #[test]
    fn a_packet_to_this_machine_passes_to_its_address_of_the_internets_side_only() {
        let mut own = own(&[(HOST, 32), (OWN, 32)]);
        let to = |address: Ipv4Addr| tcp((INSTANCE, 40_000), (address, 22));
        assert!(own.refuses(at(0), &to(HOST)));
        assert!(!own.refuses(at(0), &to(OWN)));
        assert!(!own.refuses(at(0), &to(Ipv4Addr::new(192, 0, 2, 2))));
        assert!(own.refuses(at(0), &[0x45, 0]), "no packet");
        // The thread finds another address.
        own.shared.set(Ranges::of([(Ipv4Addr::new(192, 0, 2, 2), 32)]));
        assert!(own.refuses(at(0), &to(Ipv4Addr::new(192, 0, 2, 2))));
        assert!(!own.refuses(at(0), &to(HOST)));
    }

    #[test]
    fn answers_in_a_conversation_that_this_machine_has_begun_pass_and_nothing_else() {
        let mut own = own(&[(HOST, 32)]);
        let begins = tcp((HOST, 50_000), (INSTANCE, 443));
        let answer = tcp((INSTANCE, 443), (HOST, 50_000));
        assert!(own.refuses(at(0), &answer));
        own.arrives(at(1), &Packet::read(&begins).unwrap(), &begins);
        assert!(!own.refuses(at(2), &answer));
        assert!(own.refuses(at(2), &tcp((INSTANCE, 443), (HOST, 22))));
        assert!(own.refuses(at(2), &tcp((INSTANCE, 444), (HOST, 50_000))));
        // An error about a packet of the connection passes; one about another packet is refused.
        let error = |about: &[u8]| {
            let quote = [&[3, 4, 0, 0, 0, 0, 5, 0][..], &about[..28]].concat();
            packet(protocol::ICMP, INSTANCE, HOST, &quote)
        };
        assert!(!own.refuses(at(2), &error(&begins)));
        assert!(own.refuses(at(2), &error(&tcp((HOST, 50_001), (INSTANCE, 443)))));
        // ICMP echo.
        let echo = |kind: u8, from, to| packet(protocol::ICMP, from, to, &[kind, 0, 0, 0, 0, 7]);
        let request = echo(8, HOST, INSTANCE);
        assert!(own.refuses(at(2), &echo(0, INSTANCE, HOST)));
        own.arrives(at(2), &Packet::read(&request).unwrap(), &request);
        assert!(!own.refuses(at(2), &echo(0, INSTANCE, HOST)));
    }

    #[test]
    fn conversations_are_kept_up_to_their_bound() {
        let mut own = own(&[(HOST, 32)]);
        let begin = |own: &mut Own, second, port| {
            let bytes = tcp((HOST, port), (INSTANCE, 443));
            own.arrives(at(second), &Packet::read(&bytes).unwrap(), &bytes);
        };
        (0..=4096).for_each(|port| begin(&mut own, u64::from(port) / 10, port));
        assert_eq!(own.conversations.len(), CONVERSATIONS_MAX);
        assert_eq!(own.order.len(), CONVERSATIONS_MAX);
        assert!(own.refuses(at(500), &tcp((INSTANCE, 443), (HOST, 0))), "the oldest one is gone");
        assert!(!own.refuses(at(500), &tcp((INSTANCE, 443), (HOST, 4096))));
        (0..5000).for_each(|n| begin(&mut own, 100_000 + n, 9));
        assert!(own.conversations.len() < 10, "idle ones are forgotten");
    }

    #[test]
    fn the_kernels_table_has_the_loopback() {
        let mut table = Table::open().unwrap();
        assert!(table.read().unwrap().has(Ipv4Addr::LOCALHOST));
    }
}
