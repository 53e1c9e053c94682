//! A card as the specification reads: each packet is read anew, rules are walked from first to
//! last, frames wait in a list. It has no flow table, no caches, no limits.

use std::collections::BTreeMap;
use std::net::IpAddr;

use srd_card::packet::Packet;
use srd_card::{Counters, FlowKey, Prefix, Traffic};
use srd_proto::time::{Duration, Instant};

use super::order::{Chunk, Decision, Order};
use super::packets::{ICMP, ICMP_V6, OFFLOAD_BYTES, TCP, TUNNELS, UDP, pseudo_sum, sum};

/// A flow that was silent for so long takes a new number.
const RENUMBER_AFTER: Duration = Duration::from_secs(60);
/// Answers come one per millisecond, and fifty at once.
const ANSWER: Duration = Duration::from_millis(1);
const ANSWERS: u64 = 50;

/// What a frame's headers say.
struct Read {
    packet: Packet,
    /// Bytes of the packet, and of its headers.
    bytes: usize,
    headers: usize,
    /// Payload bytes per segment of a super-packet.
    step: Option<usize>,
}

impl Read {
    fn of(frame: &[u8]) -> Option<Self> {
        let (header, bytes) = frame.split_at_checked(OFFLOAD_BYTES)?;
        let packet = Packet::read(bytes)?;
        let word = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let left = header[0] & 1 != 0;
        if left && (word(6) < packet.transport_at || word(6) + word(8) + 2 > bytes.len()) {
            return None;
        }
        let transport = match packet.protocol {
            TCP => packet.tcp_header_bytes(bytes).unwrap_or(20),
            UDP => 8,
            _ => 0,
        };
        let headers = packet.transport_at + transport;
        let step = (header[1] != 0).then(|| word(4));
        if step.is_some() {
            let kind = if packet.is_v4() { 1 } else { 4 };
            let right = header[1] == kind && packet.protocol == TCP && left && word(4) > 0;
            if !right || (word(6), word(8)) != (packet.transport_at, 16) {
                return None;
            }
        }
        let read = Self { packet, bytes: bytes.len(), headers, step };
        (read.packets() <= 1366).then_some(read)
    }

    fn packets(&self) -> u64 {
        let payload = self.bytes.saturating_sub(self.headers);
        self.step.map_or(1, |step| payload.div_ceil(step).max(1)) as u64
    }
}

/// What goes to a peer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Sent {
    /// A frame by SRD: the number of its flow (ours, in the order of their first use), and which of
    /// the frames under that number it is.
    Srd(u64, u64, Vec<u8>),
    /// A packet by itself.
    Plain(Vec<u8>),
}

/// The number of a flow at its peer.
struct Numbering {
    machine: usize,
    number: u64,
    frames: u64,
    at: Instant,
}

/// A peer, and the rules about it.
pub(crate) struct Peer {
    pub(crate) allowed: Vec<Prefix>,
    pub(crate) express: bool,
    pub(crate) udp: bool,
    /// Its offer: SRD is on, for UDP, for tunnels.
    pub(crate) offer: Option<(bool, bool, bool)>,
    /// Whether the transport knows it.
    pub(crate) connected: bool,
    pub(crate) traffic: Traffic,
    waiting: Vec<Vec<u8>>,
}

/// The card.
pub(crate) struct Card {
    pub(crate) mtu: usize,
    /// Bytes of a packet that one datagram carries.
    pub(crate) fits: usize,
    pub(crate) wait: Duration,
    pub(crate) express: bool,
    pub(crate) udp: bool,
    pub(crate) tunnels: bool,
    pub(crate) bypass: bool,
    pub(crate) peers: BTreeMap<usize, Peer>,
    pub(crate) order: Order,
    pub(crate) sent: BTreeMap<(usize, FlowKey), Vec<Sent>>,
    pub(crate) guest: BTreeMap<FlowKey, Vec<Vec<u8>>>,
    counters: Counters,
    numbers: BTreeMap<FlowKey, Numbering>,
    next_number: u64,
    /// Time for which no answer was given, of which each answer takes some.
    answers: Duration,
    answered_at: Instant,
}

impl Card {
    pub(crate) fn new(now: Instant, mtu: usize, fits: usize, wait: Duration) -> Self {
        Self {
            mtu,
            fits,
            wait,
            express: true,
            udp: true,
            tunnels: false,
            bypass: false,
            peers: BTreeMap::new(),
            order: Order::default(),
            sent: BTreeMap::new(),
            guest: BTreeMap::new(),
            counters: Counters::default(),
            numbers: BTreeMap::new(),
            next_number: 0,
            answers: ANSWER.times(ANSWERS),
            answered_at: now,
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.counters;
        let order = self.order.counts;
        counters.order.waited = order.waited;
        counters.order.wait_timeouts = order.wait_timeouts;
        counters.order.given_up = order.given_up;
        counters.order.bad_chunks = order.bad_chunks;
        counters
    }

    pub(crate) fn add_peer(&mut self, machine: usize, allowed: Vec<Prefix>) {
        let peer = Peer {
            allowed,
            express: true,
            udp: true,
            offer: None,
            connected: true,
            traffic: Traffic::default(),
            waiting: Vec::new(),
        };
        self.peers.insert(machine, peer);
    }

    pub(crate) fn remove_peer(&mut self, machine: usize) {
        self.peers.remove(&machine);
        self.numbers.retain(|_, numbering| numbering.machine != machine);
        self.order.forget_peer(machine);
    }

    pub(crate) fn peer_down(&mut self, machine: usize) {
        let Some(peer) = self.peers.get_mut(&machine) else { return };
        peer.offer = None;
        self.numbers.retain(|_, numbering| numbering.machine != machine);
    }

    /// A frame of a flow was lost on its way.
    pub(crate) fn send_failed(&mut self, machine: usize, key: &FlowKey) {
        if self.peers.contains_key(&machine) {
            self.numbers.remove(key);
            self.counters.send_failed += 1;
        }
    }

    /// The peer whose longest prefix holds an address.
    fn owner(&self, address: IpAddr) -> Option<usize> {
        let all = self.peers.iter().flat_map(|(at, p)| p.allowed.iter().map(move |a| (a, *at)));
        let holding = all.filter(|(prefix, _)| prefix.contains(address));
        holding.max_by_key(|(prefix, _)| prefix.length()).map(|(_, at)| at)
    }

    pub(crate) fn take_from_guest(&mut self, now: Instant, frame: &[u8]) {
        let Some(read) = Read::of(frame) else {
            self.counters.guest_malformed += 1;
            return;
        };
        let mut frame = frame.to_vec();
        self.counters.mss_clamped += u64::from(clamp(&mut frame, &read, self.mtu));
        let Some(machine) = self.owner(read.packet.destination) else {
            self.counters.guest_no_peer += 1;
            return;
        };
        // A flow that goes to another peer than before is new there.
        let key = FlowKey::of(&read.packet);
        self.numbers.retain(|other, numbering| *other != key || numbering.machine == machine);
        let by_srd = self.rides(&self.peers[&machine], &read);
        let fits = by_srd || read.packet.protocol == TCP || read.bytes <= self.fits;
        let parts = if fits { vec![frame.clone()] } else { parts(&frame, &read, self.fits) };
        if parts.is_empty() {
            self.too_big(now, &frame, &read);
            return;
        }
        self.counters.guest_cut += u64::from(!fits);
        self.peers.get_mut(&machine).unwrap().waiting.extend(parts);
    }

    fn too_big(&mut self, now: Instant, frame: &[u8], read: &Read) {
        self.counters.guest_too_big += 1;
        self.answers = self.answers + now.since(self.answered_at);
        self.answers = self.answers.min(ANSWER.times(ANSWERS));
        self.answered_at = now;
        if self.answers >= ANSWER {
            self.answers = Duration::from_nanos(self.answers.as_nanos() - ANSWER.as_nanos());
            // Of an answer only what it is about is compared: who sent which packet.
            let key = FlowKey::of(&read.packet);
            let key = FlowKey { source: key.destination, destination: key.source, ..key };
            let key = FlowKey { protocol: answer_protocol(&read.packet), ports: (0, 0), ..key };
            let quoted = frame[OFFLOAD_BYTES..][..read.packet.transport_at + 8].to_vec();
            self.guest.entry(key).or_default().push(quoted);
        }
    }

    /// Whether SRD is on towards a peer, for a protocol.
    fn agreed(&self, peer: &Peer, protocol: u8) -> bool {
        let Some((express, udp, tunnels)) = peer.offer else { return false };
        let on = self.express && peer.express && express;
        let carried = match protocol {
            TCP => true,
            UDP => self.udp && peer.udp && udp,
            _ => TUNNELS.contains(&protocol) && self.tunnels && tunnels,
        };
        on && carried
    }

    fn eligible(&self, peer: &Peer, read: &Read) -> bool {
        let whole = !read.packet.fragment && TUNNELS.contains(&read.packet.protocol);
        (read.packet.ports.is_some() || whole) && self.agreed(peer, read.packet.protocol)
    }

    fn rides(&self, peer: &Peer, read: &Read) -> bool {
        self.eligible(peer, read) && (read.step.is_some() || read.bytes <= self.mtu)
    }

    /// Everything that waits is sent.
    pub(crate) fn drain(&mut self, now: Instant) {
        for machine in self.peers.keys().copied().collect::<Vec<_>>() {
            let waiting = std::mem::take(&mut self.peers.get_mut(&machine).unwrap().waiting);
            for frame in waiting {
                self.send(now, machine, frame);
            }
        }
    }

    fn send(&mut self, now: Instant, machine: usize, frame: Vec<u8>) {
        let read = Read::of(&frame).unwrap();
        let (packets, bytes) = (read.packets(), read.bytes as u64);
        let peer = &self.peers[&machine];
        let (eligible, rides) = (self.eligible(peer, &read), self.rides(peer, &read));
        let peer = self.peers.get_mut(&machine).unwrap();
        for traffic in [&mut peer.traffic, &mut self.counters.traffic] {
            traffic.eligible_tx_pkts += if eligible { packets } else { 0 };
            let (pkts, all) = match rides {
                true => (&mut traffic.srd_tx_pkts, &mut traffic.srd_tx_bytes),
                false => (&mut traffic.plain_tx_pkts, &mut traffic.plain_tx_bytes),
            };
            (*pkts, *all) = (*pkts + packets, *all + bytes);
        }
        let key = FlowKey::of(&read.packet);
        let sent = self.sent.entry((machine, key)).or_default();
        if !rides {
            let segments = segments(&frame, &read, self.fits);
            if peer.connected {
                sent.extend(segments.into_iter().map(Sent::Plain));
            } else {
                self.counters.send_refused += segments.len() as u64;
            }
            return;
        }
        let known = self.numbers.get(&key).is_some_and(|n| now.since(n.at) <= RENUMBER_AFTER);
        if !known {
            let number = self.next_number;
            self.next_number += 1;
            self.numbers.insert(key, Numbering { machine, number, frames: 0, at: now });
        }
        if !peer.connected {
            self.numbers.remove(&key);
            self.counters.send_refused += 1;
            return;
        }
        let numbering = self.numbers.get_mut(&key).unwrap();
        sent.push(Sent::Srd(numbering.number, numbering.frames, frame));
        (numbering.frames, numbering.at) = (numbering.frames + 1, now);
    }

    /// A peer's datagram that was sent plainly.
    pub(crate) fn plain(&mut self, machine: usize, frame: &[u8]) {
        if self.peers.contains_key(&machine) {
            self.up(machine, frame, false);
        }
    }

    /// A peer's chunk.
    pub(crate) fn chunk(&mut self, now: Instant, chunk: Chunk) {
        let machine = chunk.name.0;
        if !self.peers.contains_key(&machine) {
            return;
        }
        let mut order = std::mem::take(&mut self.order);
        let up = order.chunk(now, chunk, |frame| match self.admit(machine, frame) {
            Some(read) if self.bypass && read.packet.protocol == UDP => Decision::AtOnce,
            Some(_) => Decision::Waits,
            None => Decision::Refused,
        });
        self.order = order;
        up.iter().for_each(|frame| self.up(machine, frame, true));
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for (machine, frame) in self.order.handle_timeout(now, self.wait) {
            self.up(machine, &frame, true);
        }
    }

    /// Reads a frame of a peer that may send it. Others are counted.
    fn admit(&mut self, machine: usize, frame: &[u8]) -> Option<Read> {
        let read = Read::of(frame);
        self.counters.peer_malformed += u64::from(read.is_none());
        let read = read?;
        let own = self.owner(read.packet.source) == Some(machine);
        self.counters.peer_bad_source += u64::from(!own);
        let refused = if own { 0 } else { read.packets() };
        self.counters.traffic.refused_pkts += refused;
        if let Some(peer) = self.peers.get_mut(&machine) {
            peer.traffic.refused_pkts += refused;
        }
        own.then_some(read)
    }

    /// A frame goes up to the guest.
    fn up(&mut self, machine: usize, frame: &[u8], by_srd: bool) {
        let Some(read) = self.admit(machine, frame) else { return };
        let (packets, bytes) = (read.packets(), read.bytes as u64);
        let peer = self.peers.get_mut(&machine).unwrap();
        for traffic in [&mut peer.traffic, &mut self.counters.traffic] {
            let (pkts, all) = match by_srd {
                true => (&mut traffic.srd_rx_pkts, &mut traffic.srd_rx_bytes),
                false => (&mut traffic.plain_rx_pkts, &mut traffic.plain_rx_bytes),
            };
            (*pkts, *all) = (*pkts + packets, *all + bytes);
        }
        let mut frame = frame.to_vec();
        self.counters.mss_clamped += u64::from(clamp(&mut frame, &read, self.mtu));
        self.guest.entry(FlowKey::of(&read.packet)).or_default().push(frame);
    }
}

/// The protocol of an answer.
fn answer_protocol(packet: &Packet) -> u8 {
    if packet.is_v4() { ICMP } else { ICMP_V6 }
}

/// Writes the sum that a field holds: the complement of all that it covers.
fn set_sum(bytes: &mut [u8], at: usize, sum: u32) {
    bytes[at..at + 2].copy_from_slice(&u16::try_from(sum).unwrap().to_be_bytes());
}

/// Lowers the segment size of a SYN, whose option comes first. The checksum, whatever it was, stays
/// as right as it was.
fn clamp(frame: &mut [u8], read: &Read, mtu: usize) -> bool {
    let bytes = &mut frame[OFFLOAD_BYTES..];
    let at = read.packet.transport_at;
    if read.packet.protocol != TCP || bytes[at + 13] & 2 == 0 || bytes[at + 20] != 2 {
        return false;
    }
    let most = u16::try_from(mtu - if read.packet.is_v4() { 40 } else { 60 }).unwrap();
    let old = u16::from_be_bytes([bytes[at + 22], bytes[at + 23]]);
    if old <= most {
        return false;
    }
    bytes[at + 22..at + 24].copy_from_slice(&most.to_be_bytes());
    let field = u32::from(u16::from_be_bytes([bytes[at + 16], bytes[at + 17]]));
    let change = sum(&most.to_be_bytes(), sum(&(!old).to_be_bytes(), !field & 0xffff));
    set_sum(bytes, at + 16, !change & 0xffff);
    true
}

fn set_ip_length(packet: &mut [u8], is_v4: bool) {
    let (at, length) = if is_v4 { (2, packet.len()) } else { (4, packet.len() - 40) };
    packet[at..at + 2].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    if is_v4 {
        packet[10..12].fill(0);
        let sum = !sum(&packet[..20], 0) & 0xffff;
        set_sum(packet, 10, sum);
    }
}

/// The packets that a frame which goes plainly becomes.
fn segments(frame: &[u8], read: &Read, fits: usize) -> Vec<Vec<u8>> {
    let Some(step) = read.step.filter(|_| read.bytes > read.headers) else {
        return vec![frame.to_vec()];
    };
    let step = step.min(fits - read.headers);
    let (header, payload) = frame.split_at(OFFLOAD_BYTES + read.headers);
    let count = payload.len().div_ceil(step);
    let segment = |(index, part): (usize, &[u8])| {
        let mut out = [header, part].concat();
        out[1..6].fill(0);
        let at = read.packet.transport_at;
        let packet = &mut out[OFFLOAD_BYTES..];
        let offset = u32::try_from(index * step).unwrap();
        let first = u32::from_be_bytes(packet[at + 4..at + 8].try_into().unwrap());
        packet[at + 4..at + 8].copy_from_slice(&first.wrapping_add(offset).to_be_bytes());
        if index + 1 < count {
            packet[at + 13] &= !0x09;
        }
        let is_v4 = read.packet.is_v4();
        let addresses = if is_v4 { &packet[12..20] } else { &packet[8..40] };
        let sum = pseudo_sum(addresses, TCP, packet.len() - at);
        set_sum(packet, at + 16, sum);
        if is_v4 {
            let id = u16::from_be_bytes([packet[4], packet[5]]);
            let id = id.wrapping_add(u16::try_from(index).unwrap());
            packet[4..6].copy_from_slice(&id.to_be_bytes());
        }
        set_ip_length(packet, is_v4);
        out
    };
    payload.chunks(step).enumerate().map(segment).collect()
}

/// The parts of an IPv4 packet without options; none if it may not be cut.
fn parts(frame: &[u8], read: &Read, fits: usize) -> Vec<Vec<u8>> {
    if read.packet.dont_fragment {
        return Vec::new();
    }
    let (header, payload) = frame.split_at(OFFLOAD_BYTES + 20);
    let step = (fits - 20) / 8 * 8;
    let part = |(index, part): (usize, &[u8])| {
        let mut out = [header, part].concat();
        let more = (index + 1) * step < payload.len();
        let offset = u16::try_from(index * step / 8).unwrap() | if more { 0x2000 } else { 0 };
        let packet = &mut out[OFFLOAD_BYTES..];
        packet[6..8].copy_from_slice(&offset.to_be_bytes());
        set_ip_length(packet, true);
        out
    };
    payload.chunks(step).enumerate().map(part).collect()
}
