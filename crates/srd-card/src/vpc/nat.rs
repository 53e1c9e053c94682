//! What a NAT gateway remembers: the ports of its public address that stand for connections.
//!
//! A port stands for one connection (V8) to each destination, so that an address has as many
//! connections to each destination as ports. Source: Amazon VPC User Guide, *NAT gateways*: 55,000
//! connections to each unique destination, 350 seconds of idle time.
//!
//! Invariant: both tables have the same connections. Bound: [`ENTRIES_MAX`] connections, of which
//! one interface has [`ENTRIES_OF_ONE_MAX`] at most; new ones beyond are refused. Of a full table,
//! the interface that has most gives way to one that has fewer. Each call for a packet does bounded
//! work.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::{IpAddr, Ipv4Addr};

use srd_proto::time::{Duration, Instant};
use srd_vpc::id::{EniId, NatGatewayId};

use super::read::Read;
use super::translate;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::{protocol, u16_at};

/// Connections of all NAT gateways of an edge.
pub const ENTRIES_MAX: usize = 1 << 18;
/// Connections of one interface: a guest that asks everybody leaves the others their part.
pub const ENTRIES_OF_ONE_MAX: usize = ENTRIES_MAX / 4;
/// A connection may be silent for so long.
const IDLE: Duration = Duration::from_secs(350);
/// First port of a public address that stands for connections: 55,000 from here on.
const PORT_FIRST: u16 = 10_000;
const PORTS: u16 = 55_000;
/// Ports that are tried for a new connection.
const TRIES: u16 = 256;
/// From one of them to the next: without a divisor in common with their number.
const PORT_STEP: u32 = 857;
/// Entries that a new connection looks at to free those that are over.
const SWEEP: usize = 4;
/// Entries of the interface that has most that are looked at: the one that was silent for longest
/// gives way.
const LOOKED_AT: usize = 8;

/// The private side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Inside {
    eni: EniId,
    nat: NatGatewayId,
    source: (Ipv4Addr, u16),
    remote: (Ipv4Addr, u16),
    protocol: u8,
}

/// The public side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Outside {
    public: (Ipv4Addr, u16),
    remote: (Ipv4Addr, u16),
    protocol: u8,
}

/// Why a packet was not translated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NatError {
    /// It is neither TCP nor UDP nor an ICMP echo of IPv4, or a fragment.
    Protocol,
    /// All ports that were tried stand for other connections to its destination, or the table or
    /// the interface's part of it is full: `ErrorPortAllocation` of a NAT gateway.
    NoPort,
}

/// The connections of an edge's NAT gateways.
#[derive(Debug, Default)]
pub struct Nat {
    by_inside: BTreeMap<Inside, (Outside, Instant)>,
    by_outside: BTreeMap<Outside, Inside>,
    of_one: Parts,
    /// Where the sweep goes on.
    swept: Option<Inside>,
    /// The last one that gave way.
    gave_way: Option<Inside>,
}

/// How many connections each interface has that has some.
#[derive(Debug, Default)]
struct Parts {
    of: BTreeMap<EniId, usize>,
    by_count: BTreeSet<(usize, EniId)>,
}

impl Parts {
    fn get(&self, eni: EniId) -> usize {
        self.of.get(&eni).copied().unwrap_or_default()
    }

    fn set(&mut self, eni: EniId, count: usize) {
        let before = self.of.insert(eni, count).unwrap_or_default();
        self.by_count.remove(&(before, eni));
        if count == 0 {
            self.of.remove(&eni);
        } else {
            self.by_count.insert((count, eni));
        }
    }

    /// The interface that has most.
    fn most(&self) -> Option<(usize, EniId)> {
        self.by_count.last().copied()
    }
}

/// The ports of a packet: of TCP and UDP both, of an ICMP echo its identifier twice, and where the
/// own one is written when it goes out and when it comes back.
struct Ports {
    ports: (u16, u16),
    source_at: usize,
    destination_at: usize,
    checksum_at: usize,
}

fn ports(read: &Read, bytes: &[u8]) -> Option<Ports> {
    let at = read.packet.transport_at;
    match (read.packet.protocol, read.packet.ports) {
        (protocol::TCP, Some(ports)) if bytes.len() >= at + 18 => {
            Some(Ports { ports, source_at: at, destination_at: at + 2, checksum_at: at + 16 })
        }
        (protocol::UDP, Some(ports)) => {
            Some(Ports { ports, source_at: at, destination_at: at + 2, checksum_at: at + 6 })
        }
        (protocol::ICMP, None) if !read.packet.fragment && bytes.len() >= at + 8 => {
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

impl Nat {
    /// Connections.
    pub fn len(&self) -> usize {
        self.by_inside.len()
    }

    /// Whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.by_inside.is_empty()
    }

    /// Writes the public source into a frame that leaves by a gateway.
    ///
    /// # Errors
    /// The frame is unchanged, and must be dropped.
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
        let found = ports(&read, bytes).ok_or(NatError::Protocol)?;
        let (IpAddr::V4(source), IpAddr::V4(remote)) =
            (read.packet.source, read.packet.destination)
        else {
            return Err(NatError::Protocol);
        };
        let is_icmp = read.packet.protocol == protocol::ICMP;
        let remote = (remote, if is_icmp { 0 } else { found.ports.1 });
        let (source, number) = ((source, found.ports.0), read.packet.protocol);
        let inside = Inside { nat, eni, source, remote, protocol: number };
        let outside = self.outside(now, inside, public)?;
        translate::write(bytes, &read.layout, translate::SOURCE_AT, public);
        let port = outside.public.1;
        translate::write_port(bytes, &read.layout, found.source_at, found.checksum_at, port);
        Ok(())
    }

    /// Writes the private destination into a frame from the internet, if it belongs to a
    /// connection: the gateway, and the interface that it is for.
    pub fn arrive(&mut self, now: Instant, frame: &mut [u8]) -> Option<(NatGatewayId, EniId)> {
        let read = Read::frame(frame)?;
        let bytes = &mut frame[OFFLOAD_BYTES..];
        let found = ports(&read, bytes)?;
        let (IpAddr::V4(remote), IpAddr::V4(public)) =
            (read.packet.source, read.packet.destination)
        else {
            return None;
        };
        let number = read.packet.protocol;
        let is_icmp = number == protocol::ICMP;
        let remote = (remote, if is_icmp { 0 } else { found.ports.0 });
        let outside = Outside { public: (public, found.ports.1), remote, protocol: number };
        let inside = *self.by_outside.get(&outside)?;
        let entry = self.by_inside.get_mut(&inside)?;
        if entry.1 + IDLE <= now {
            self.forget(inside);
            return None;
        }
        entry.1 = now;
        let (address, port) = inside.source;
        translate::write(bytes, &read.layout, translate::DESTINATION_AT, address);
        translate::write_port(bytes, &read.layout, found.destination_at, found.checksum_at, port);
        Some((inside.nat, inside.eni))
    }

    /// The public side of a connection, a new one if need be.
    fn outside(
        &mut self,
        now: Instant,
        inside: Inside,
        public: Ipv4Addr,
    ) -> Result<Outside, NatError> {
        if let Some((outside, used_at)) = self.by_inside.get_mut(&inside)
            && outside.public.0 == public
        {
            *used_at = now;
            return Ok(*outside);
        }
        self.forget(inside);
        self.sweep(now);
        let of_one = self.of_one.get(inside.eni);
        if of_one >= ENTRIES_OF_ONE_MAX {
            return Err(NatError::NoPort);
        }
        let Inside { source, remote, protocol, .. } = inside;
        // The guest's own port, if it is free: programs that look at ports see theirs.
        let first = u32::from(source.1.wrapping_sub(PORT_FIRST));
        let port = |step: u16| (first + u32::from(step) * PORT_STEP) % u32::from(PORTS);
        let tried = (0..TRIES).map(|step| PORT_FIRST + u16::try_from(port(step)).unwrap_or(0));
        let free = tried.map(|port| Outside { public: (public, port), remote, protocol });
        let mut free = free.filter(|outside| !self.by_outside.contains_key(outside));
        let outside = free.next().ok_or(NatError::NoPort)?;
        if self.by_inside.len() >= ENTRIES_MAX {
            // V8
            let most = self.of_one.most().filter(|(count, _)| *count > of_one + 1);
            let (_, eni) = most.ok_or(NatError::NoPort)?;
            self.give_way(eni);
        }
        self.by_outside.insert(outside, inside);
        self.by_inside.insert(inside, (outside, now));
        self.of_one.set(inside.eni, of_one + 1);
        Ok(outside)
    }

    /// Forgets a connection of an interface.
    fn give_way(&mut self, eni: EniId) {
        use core::ops::Bound::{Excluded, Included, Unbounded};
        let first = Inside {
            eni,
            nat: NatGatewayId(0),
            source: (Ipv4Addr::UNSPECIFIED, 0),
            remote: (Ipv4Addr::UNSPECIFIED, 0),
            protocol: 0,
        };
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

    /// Forgets the connections of gateways that are not there any more, or have another public
    /// address now: an answer must not pass by a gateway that was taken away (V4).
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
            let of_one = self.of_one.get(inside.eni);
            self.of_one.set(inside.eni, of_one.saturating_sub(1));
        }
    }

    /// Looks at a few connections, and forgets those that are over.
    fn sweep(&mut self, now: Instant) {
        use core::ops::Bound::{Excluded, Unbounded};
        let from = self.swept.map_or(Unbounded, Excluded);
        let next = self.by_inside.range((from, Unbounded)).take(SWEEP);
        let looked: alloc::vec::Vec<_> = next.map(|(inside, (_, at))| (*inside, *at)).collect();
        self.swept = looked.last().map(|(inside, _)| *inside);
        for (inside, used_at) in looked {
            if used_at + IDLE <= now {
                self.forget(inside);
            }
        }
    }
}

mod stored;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::checksum;
    use crate::testing::{framed, v4};
    use std::vec::Vec;

    const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 5);
    const GATEWAY: NatGatewayId = NatGatewayId(1);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn tcp(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
        let mut bytes = v4(protocol::TCP, ports, b"data");
        bytes[12..16].copy_from_slice(&source);
        bytes[16..20].copy_from_slice(&destination);
        (bytes[10], bytes[11]) = (0, 0);
        let sum = checksum::of(&bytes[..20]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        let sum = checksum::transport(&bytes[12..20], protocol::TCP, &bytes[20..]);
        bytes[36..38].copy_from_slice(&sum.to_be_bytes());
        framed(&bytes)
    }

    fn check(frame: &[u8]) {
        let bytes = &frame[OFFLOAD_BYTES..];
        assert_eq!(checksum::of(&bytes[..20]), 0);
        assert_eq!(checksum::transport(&bytes[12..20], protocol::TCP, &bytes[20..]), 0);
    }

    fn source(frame: &[u8]) -> (IpAddr, u16) {
        let read = Read::frame(frame).unwrap();
        (read.packet.source, read.packet.ports.unwrap().0)
    }

    #[test]
    fn an_answer_finds_its_way_back_with_right_checksums() {
        let mut nat = Nat::default();
        let mut out = tcp([10, 0, 2, 10], [8, 8, 8, 8], (40_000, 443));
        nat.leave(at(0), GATEWAY, PUBLIC, EniId(7), &mut out).unwrap();
        check(&out);
        assert_eq!(source(&out), (PUBLIC.into(), 40_000), "the guest's own port");
        let mut back = tcp([8, 8, 8, 8], PUBLIC.octets(), (443, 40_000));
        assert_eq!(nat.arrive(at(1), &mut back), Some((GATEWAY, EniId(7))));
        check(&back);
        let read = Read::frame(&back).unwrap();
        assert_eq!(read.packet.destination, IpAddr::from([10, 0, 2, 10]));
        assert_eq!(read.packet.ports, Some((443, 40_000)));
        // Another machine, and another port of the same, are no part of the connection.
        for (from, port) in [([8, 8, 4, 4], 443), ([8, 8, 8, 8], 444)] {
            let mut other = tcp(from, PUBLIC.octets(), (port, 40_000));
            assert_eq!(nat.arrive(at(1), &mut other), None);
        }
        let mut late = tcp([8, 8, 8, 8], PUBLIC.octets(), (443, 40_000));
        assert_eq!(nat.arrive(at(352), &mut late), None, "idle for more than 350 s");
        assert!(nat.is_empty());
    }

    #[test]
    fn two_guests_with_one_address_and_port_get_two_ports() {
        let mut nat = Nat::default();
        let mut ports = Vec::new();
        for eni in [1, 2] {
            let mut out = tcp([10, 0, 2, 10], [8, 8, 8, 8], (40_000, 443));
            nat.leave(at(0), GATEWAY, PUBLIC, EniId(eni), &mut out).unwrap();
            ports.push(source(&out).1);
        }
        assert_ne!(ports[0], ports[1]);
        for (eni, port) in [(1, ports[0]), (2, ports[1])] {
            let mut back = tcp([8, 8, 8, 8], PUBLIC.octets(), (443, port));
            assert_eq!(nat.arrive(at(1), &mut back), Some((GATEWAY, EniId(eni))));
        }
    }

    #[test]
    fn an_echo_keeps_its_identifier_apart_from_another_guest_s() {
        let mut nat = Nat::default();
        let echo = |kind: u8, source: [u8; 4], destination: [u8; 4], id: u16| {
            let mut frame = tcp(source, destination, (0, 0));
            frame[OFFLOAD_BYTES + 9] = protocol::ICMP;
            let icmp = &mut frame[OFFLOAD_BYTES + 20..];
            icmp[..8].copy_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 1]);
            icmp[4..6].copy_from_slice(&id.to_be_bytes());
            frame
        };
        let id_of = |frame: &[u8]| u16_at(frame, OFFLOAD_BYTES + 24);
        let mut ids = Vec::new();
        for eni in [1, 2] {
            let mut out = echo(8, [10, 0, 2, 10], [8, 8, 8, 8], 77);
            nat.leave(at(0), GATEWAY, PUBLIC, EniId(eni), &mut out).unwrap();
            ids.push(id_of(&out));
        }
        assert_ne!(ids[0], ids[1]);
        let mut back = echo(0, [8, 8, 8, 8], PUBLIC.octets(), ids[1]);
        assert_eq!(nat.arrive(at(0), &mut back), Some((GATEWAY, EniId(2))));
        assert_eq!(id_of(&back), 77);
    }

    #[test]
    fn connections_that_are_over_make_room_and_a_full_address_refuses() {
        let mut nat = Nat::default();
        let mut refused = 0;
        for n in 0..3000_u32 {
            let eni = EniId(n.into());
            let mut out = tcp([10, 0, 2, 10], [8, 8, 8, 8], (40_000, 443));
            refused += u32::from(nat.leave(at(0), GATEWAY, PUBLIC, eni, &mut out).is_err());
        }
        assert_eq!(nat.len(), usize::from(TRIES), "one port that all ask for");
        assert_eq!(refused, 3000 - u32::from(TRIES));
        for n in 0..200_u16 {
            let mut out = tcp([10, 0, 2, 10], [8, 8, 8, 9], (n, 443));
            nat.leave(at(400), GATEWAY, PUBLIC, EniId(1), &mut out).unwrap();
        }
        assert_eq!(nat.len(), 200, "the old ones are gone");
    }
    #[test]
    fn regression_guests_that_ask_everybody_leave_others_their_part() {
        let mut nat = Nat::default();
        let mut leave = |eni: u64, n: usize, seconds| {
            let [_, a, b, c] = u32::try_from(n).unwrap().to_be_bytes();
            let mut out = tcp([10, 0, 2, 10], [8, a, b, c], (40_000, 443));
            nat.leave(at(seconds), GATEWAY, PUBLIC, EniId(eni), &mut out)
        };
        for n in 0..ENTRIES_OF_ONE_MAX {
            leave(1, n, 0).unwrap();
        }
        assert_eq!(leave(1, ENTRIES_OF_ONE_MAX, 1), Err(NatError::NoPort));
        leave(1, 0, 1).unwrap();
        for eni in 2..=4 {
            (0..ENTRIES_OF_ONE_MAX).for_each(|n| leave(eni, n, 1).unwrap());
        }
        // Four that have taken all share with a fifth one, and none of them has more than another
        // in the end: their oldest connections give way.
        let part = ENTRIES_MAX / 5;
        (0..part).for_each(|n| leave(5, n, 2).unwrap());
        assert_eq!(leave(5, part, 2), Err(NatError::NoPort), "it has as many as the others");
        leave(5, 0, 2).unwrap();
        leave(6, 0, 2).unwrap();
        // Each try looks at a few connections, so that those that are over make room in the end.
        let tries = ENTRIES_MAX.div_ceil(SWEEP) + 1;
        assert!((0..tries).any(|_| leave(1, ENTRIES_OF_ONE_MAX, 351).is_ok()));
        leave(5, 0, 351).unwrap();
        assert!(nat.len() <= ENTRIES_MAX);
    }

    #[test]
    fn regression_a_gateway_that_was_taken_away_passes_no_answers() {
        let mut nat = Nat::default();
        let other = NatGatewayId(2);
        let others = Ipv4Addr::new(198, 51, 100, 6);
        for (gateway, public) in [(GATEWAY, PUBLIC), (other, others)] {
            let mut out = tcp([10, 0, 2, 10], [8, 8, 8, 8], (40_000, 443));
            nat.leave(at(0), gateway, public, EniId(7), &mut out).unwrap();
        }
        let mut answer = |publics: &[(NatGatewayId, Ipv4Addr)], to: Ipv4Addr| {
            nat.keep(&publics.iter().copied().collect());
            let mut back = tcp([8, 8, 8, 8], to.octets(), (443, 40_000));
            nat.arrive(at(1), &mut back).map(|(gateway, _)| gateway)
        };
        assert_eq!(answer(&[(GATEWAY, PUBLIC), (other, others)], PUBLIC), Some(GATEWAY));
        assert_eq!(answer(&[(other, PUBLIC)], PUBLIC), None, "the address is another's now");
        assert_eq!(answer(&[(other, PUBLIC)], others), None, "the gateway has another");
    }
}
