//! The naive card: a card that follows the specification literally. It reads each packet whenever
//! it needs a field, searches the rules from first to last, and keeps waiting frames in a list. It
//! has no flow table, no caches, no limits.

use std::collections::BTreeMap;
use std::net::IpAddr;

use srd_card::packet::Packet;
use srd_card::{Counters, FlowKey, Prefix, Traffic};
use srd_proto::time::{Duration, Instant};

use super::order::{Chunk, Decision, Order};
use super::packets::{ICMP, ICMP_V6, OFFLOAD_BYTES, TCP, TUNNELS, UDP, pseudo_sum, sum};

/// If a flow was silent for longer than this time, its next packet gives it a new number.
const RENUMBER_AFTER: Duration = Duration::from_secs(60);
/// Rate limit of ICMP answers: one per millisecond, and at most [`ANSWERS`] at once.
const ANSWER: Duration = Duration::from_millis(1);
const ANSWERS: u64 = 50;

/// Data of a frame's headers.
struct Read {
    packet: Packet,
    /// Bytes of the packet, and of its headers.
    bytes: usize,
    headers: usize,
    /// Payload bytes of each segment of a super-packet.
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

/// A frame or packet that is sent to a peer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Transmission {
    /// A frame over SRD: the number of its flow (flows are counted in the order of their first
    /// use), the number of the frame in the flow, and the frame.
    Srd(u64, u64, Vec<u8>),
    /// A single packet outside of SRD.
    Plain(Vec<u8>),
}

/// Numbers of a flow that is sent to a peer over SRD.
struct Numbering {
    machine: usize,
    number: u64,
    frames: u64,
    at: Instant,
}

/// A peer of the naive card, and the rules for this peer.
pub(crate) struct Peer {
    pub(crate) allowed: Vec<Prefix>,
    pub(crate) express: bool,
    pub(crate) udp: bool,
    /// Offer of the peer: whether SRD is on, whether for UDP, and whether for tunnels. `None` if
    /// the peer has made no offer.
    pub(crate) offer: Option<(bool, bool, bool)>,
    /// Whether the peer exists in the transport.
    pub(crate) connected: bool,
    pub(crate) traffic: Traffic,
    waiting: Vec<Vec<u8>>,
}

/// The naive card.
pub(crate) struct Card {
    pub(crate) mtu: usize,
    /// Largest packet that one datagram carries, in bytes.
    pub(crate) fits: usize,
    pub(crate) wait: Duration,
    pub(crate) express: bool,
    pub(crate) udp: bool,
    pub(crate) tunnels: bool,
    pub(crate) bypass: bool,
    pub(crate) peers: BTreeMap<usize, Peer>,
    pub(crate) order: Order,
    pub(crate) sent: BTreeMap<(usize, FlowKey), Vec<Transmission>>,
    pub(crate) guest: BTreeMap<FlowKey, Vec<Vec<u8>>>,
    counters: Counters,
    numbers: BTreeMap<FlowKey, Numbering>,
    next_number: u64,
    /// Rate limit of answers: time since earlier answers, of which each answer uses a millisecond.
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

    /// Handles the loss of a frame of a flow.
    pub(crate) fn send_failed(&mut self, machine: usize, key: &FlowKey) {
        if self.peers.contains_key(&machine) {
            self.numbers.remove(key);
            self.counters.send_failed += 1;
        }
    }

    /// Returns the peer whose longest prefix contains an address.
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
        // A flow that moves to another peer begins anew there.
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
            // Of an ICMP answer, only its addresses and the quoted packet are compared.
            let key = FlowKey::of(&read.packet);
            let key = FlowKey { source: key.destination, destination: key.source, ..key };
            let key = FlowKey { protocol: answer_protocol(&read.packet), ports: (0, 0), ..key };
            let quoted = frame[OFFLOAD_BYTES..][..read.packet.transport_at + 8].to_vec();
            self.guest.entry(key).or_default().push(quoted);
        }
    }

    /// Whether both ends have SRD on for packets of a protocol.
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

    /// Sends all waiting frames.
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
                sent.extend(segments.into_iter().map(Transmission::Plain));
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
        sent.push(Transmission::Srd(numbering.number, numbering.frames, frame));
        (numbering.frames, numbering.at) = (numbering.frames + 1, now);
    }

    /// Handles a datagram that a peer sent outside of SRD.
    pub(crate) fn plain(&mut self, machine: usize, frame: &[u8]) {
        if self.peers.contains_key(&machine) {
            self.up(machine, frame, false);
        }
    }

    /// Handles a chunk of a peer.
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

    /// Reads a frame of a peer. Returns `None`, and counts the frame, if it is malformed or the
    /// peer may not send it.
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

    /// Passes a frame to the guest, if the peer may send it.
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

/// Protocol of the ICMP answer to a packet.
fn answer_protocol(packet: &Packet) -> u8 {
    if packet.is_v4() { ICMP } else { ICMP_V6 }
}

/// Writes a sum of 16 bits into a checksum field.
fn set_sum(bytes: &mut [u8], at: usize, sum: u32) {
    bytes[at..at + 2].copy_from_slice(&u16::try_from(sum).unwrap().to_be_bytes());
}

/// Lowers the segment size of a SYN whose first option is the MSS. The checksum is updated, so a
/// correct checksum stays correct, and a wrong checksum stays wrong.
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

/// Returns the packets of a frame that is sent outside of SRD.
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

/// Returns the fragments of an IPv4 packet without options; empty if it may not be fragmented.
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
