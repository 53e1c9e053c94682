//! `cargo xtask hostile`: sends millions of hostile packets to endpoints, with each kind of
//! protection. The packets are changed, truncated, replayed from the same or another address, or
//! forged. Their source is a stranger's address or the peer's address.
//!
//! Conditions: every packet is counted, the peer's address does not change, packets to strangers
//! stay within the limit of rule E5, and memory stays within a bound. With encryption, no hostile
//! datagram is delivered, and afterwards the peer's datagrams arrive as before.

// Sizes are small, and random numbers are deliberately truncated to the needed width.
#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use srd_proto::crypto::HelloKey;
use srd_proto::rng::Rng;
use srd_proto::wire::handshake::Hello;
use srd_proto::wire::{HEADER_BYTES, VERSION};
use srd_proto::{
    Class, Config, Datagram, Duration, Ecn, Endpoint, Epoch, Instant, PacketMeta, PacketRef,
    PeerConfig, PeerId, Protection, Qpn, ReceiveBuffers, TransmitBuf,
};

use crate::heap;

/// Simulated time between two hostile packets: a hundred thousand packets per second.
const PACKET_TIME: Duration = Duration::from_micros(10);
/// Number of hostile packets between two rounds in which the victim's output is taken.
const BATCH: u64 = 64;
/// Permitted growth of memory by a flood, in bytes, for waiting answers and the content of one
/// context.
const GROWTH_BYTES_MAX: i64 = 1 << 20;
/// Largest number of contexts in plain mode, in which strangers can create contexts, and permitted
/// memory of each context in bytes.
const PLAIN_PEERS_MAX: u32 = 64;
const PLAIN_PEER_BYTES_MAX: i64 = 96 << 10;
/// Largest number of answers to strangers in a millisecond, according to rule E5 of
/// docs/spec/srd.md.
const ANSWERS_PER_MS_MAX: u64 = 6 + 2 + 8 + 64;
const PORT: u16 = 7471;
const QPN: Qpn = Qpn(7);

/// Kind of a hostile packet, by its content and its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Flipped,
    CutShort,
    Replayed,
    ReplayedElsewhere,
    Forged,
    ForgedByPeer,
}

const KINDS: [Kind; 6] = [
    Kind::Flipped,
    Kind::CutShort,
    Kind::Replayed,
    Kind::ReplayedElsewhere,
    Kind::Forged,
    Kind::ForgedByPeer,
];

/// Runs a flood of `packets` packets of each kind, with each kind of protection.
pub(crate) fn run(packets: u64, seed: u64) -> Result<()> {
    let protections = [Protection::Static([9; 32]), Protection::JobKey([7; 32]), Protection::Plain];
    for protection in protections {
        for kind in KINDS {
            let mut world = World::new(protection.clone(), seed);
            world.meet()?;
            let report = world.flood(kind, packets)?;
            // In plain mode, any sender that has the number of a context may end the context.
            if protection.is_on() {
                world.serve()?;
            }
            println!("{}: {kind:?}: {report}", name(&protection));
        }
    }
    Ok(())
}

fn name(protection: &Protection) -> &'static str {
    match protection {
        Protection::Plain => "plain",
        Protection::JobKey(_) => "job key",
        Protection::Static(_) => "static keys",
    }
}

fn address(n: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), PORT)
}

/// A victim of hostile packets, and its legitimate peer.
struct World {
    victim: Endpoint,
    peer: Endpoint,
    /// Id of the peer in the victim's endpoint.
    peer_at_victim: PeerId,
    victim_at_peer: PeerId,
    now: Instant,
    rng: Rng,
    protection: Protection,
    /// All packets that the peer has sent to the victim, which hostile packets are derived from.
    recorded: Vec<Vec<u8>>,
    handed: u64,
    delivered: u64,
    elsewhere: u64,
}

impl World {
    fn new(protection: Protection, seed: u64) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let make = |n: u8| {
            let mut protection = protection.clone();
            if let Protection::Static(key) = &mut protection {
                key[0] = n;
            }
            let config = Config {
                protection,
                packet_bytes_max: 1400,
                peers_max: PLAIN_PEERS_MAX,
                handshakes_per_second_max: 200,
                ..Config::sockets()
            };
            let mut endpoint = Endpoint::new(config, Epoch(u64::from(n)), [n; 32], now)
                .expect("the configuration is in range");
            endpoint.open_qp(QPN, ReceiveBuffers::Unlimited);
            endpoint
        };
        let (mut victim, mut peer) = (make(1), make(2));
        let key = peer.public_key();
        let peer_at_victim = victim.add_peer(now, PeerConfig::at(address(2)).with_key(key));
        let key = victim.public_key();
        let victim_at_peer = peer.add_peer(now, PeerConfig::at(address(1)).with_key(key));
        Self {
            peer_at_victim: peer_at_victim.expect("there is room"),
            victim_at_peer: victim_at_peer.expect("there is room"),
            victim,
            peer,
            now,
            rng: Rng::new(seed),
            protection,
            recorded: Vec::new(),
            handed: 0,
            delivered: 0,
            elsewhere: 0,
        }
    }

    /// Lets the peer send datagrams to the victim, and waits until each of them has arrived once.
    fn exchange(&mut self, datagrams: u64) -> Result<()> {
        let wanted = self.delivered + datagrams;
        for user in 0..datagrams {
            let payload = vec![user as u8; 20 + self.rng.below(1200) as usize].into();
            let (src_qpn, class) = (Qpn(1), Class::Bulk);
            let datagram = Datagram { src_qpn, dst_qpn: QPN, imm: user, payload, class, user };
            self.peer.send(self.now, self.victim_at_peer, datagram)?;
        }
        for _ in 0..200_000 {
            if self.delivered == wanted {
                return Ok(());
            }
            self.now += Duration::from_micros(50);
            self.peer.handle_timeout(self.now);
            self.victim.handle_timeout(self.now);
            self.carry();
        }
        anyhow::bail!("{} of {wanted} datagrams arrived", self.delivered)
    }

    fn meet(&mut self) -> Result<()> {
        self.exchange(500)
    }

    fn serve(&mut self) -> Result<()> {
        self.exchange(100)
    }

    /// Delivers all waiting packets of the two endpoints to each other.
    fn carry(&mut self) {
        let mut buf = TransmitBuf::new(1, 65_000);
        while let Some(t) = self.peer.poll_transmit(self.now, &mut buf) {
            let bytes: Vec<u8> =
                buf.segments().flat_map(|(head, body)| [head, body].concat()).collect();
            buf.clear();
            self.recorded.push(bytes.clone());
            let source = SocketAddr::new(address(2).ip(), 50_000 + t.entropy.0);
            self.hand(source, bytes);
        }
        self.drain(true);
    }

    /// Takes all packets that the victim sends. If `connected`, delivers the packets for the peer.
    fn drain(&mut self, connected: bool) {
        let mut buf = TransmitBuf::new(1, 65_000);
        while let Some(t) = self.victim.poll_transmit(self.now, &mut buf) {
            let mut bytes: Vec<u8> =
                buf.segments().flat_map(|(head, body)| [head, body].concat()).collect();
            buf.clear();
            if t.destination.ip() != address(2).ip() {
                self.elsewhere += 1;
            } else if connected {
                let source = SocketAddr::new(address(1).ip(), 50_000 + t.entropy.0);
                let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: self.now };
                self.peer.handle_packet(self.now, meta, PacketRef::Whole(&mut bytes));
            }
        }
        while self.victim.poll_event().is_some() {}
        while self.peer.poll_event().is_some() {}
    }

    fn hand(&mut self, source: SocketAddr, mut bytes: Vec<u8>) {
        self.handed += 1;
        let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: self.now };
        let whole = PacketRef::Whole(&mut bytes);
        if self
            .victim
            .handle_packet(self.now, meta, whole)
            .is_some_and(|d| d.peer == self.peer_at_victim)
        {
            self.delivered += 1;
        }
    }

    fn flood(&mut self, kind: Kind, packets: u64) -> Result<String> {
        let (before, delivered) = (heap::live_bytes(), self.delivered);
        let (began, drops) = (self.now, self.victim.stats().rx_drops);
        let mut most = before;
        let (mut moved, elsewhere) = (BTreeSet::new(), self.elsewhere);
        for n in 0..packets {
            self.now += PACKET_TIME;
            let (source, bytes) = self.hostile(kind);
            self.hand(source, bytes);
            moved.extend(self.victim.address_of(self.peer_at_victim).filter(|a| *a != address(2)));
            if n % BATCH == 0 {
                self.victim.handle_timeout(self.now);
                self.drain(false);
                most = most.max(heap::live_bytes());
            }
        }
        let stats = self.victim.stats();
        ensure!(stats.rx_pkts + stats.rx_drops == self.handed, "a packet is not accounted for");
        ensure!(moved.is_empty(), "{kind:?}: the peer's address moved to {moved:?}");
        let keyed = self.protection.is_on();
        ensure!(!keyed || self.delivered == delivered, "{kind:?}: a forged datagram was delivered");
        let growth = most - before;
        let plain = i64::from(PLAIN_PEERS_MAX) * PLAIN_PEER_BYTES_MAX;
        let bound = GROWTH_BYTES_MAX + if keyed { 0 } else { plain };
        ensure!(growth <= bound, "{kind:?}: memory grew by {growth} bytes, not {bound}");
        let ms = self.now.since(began).as_nanos() / 1_000_000 + 1;
        let answers = self.elsewhere - elsewhere;
        ensure!(answers <= ms * ANSWERS_PER_MS_MAX, "{answers} answers in {ms} ms");
        let drops = stats.rx_drops - drops;
        Ok(format!(
            "{packets} packets, {drops} dropped, {answers} answers, memory {growth:+} bytes"
        ))
    }

    /// Returns a hostile packet of the given kind, and its source address.
    fn hostile(&mut self, kind: Kind) -> (SocketAddr, Vec<u8>) {
        let mut bytes = self.recorded[self.rng.below(self.recorded.len() as u32) as usize].clone();
        let port = 50_000 + self.rng.below(64) as u16;
        let anywhere = Ipv4Addr::from_bits(self.rng.next_u64() as u32 | 1 << 31);
        let peer = SocketAddr::new(address(2).ip(), port);
        let stranger = SocketAddr::new(IpAddr::V4(anywhere), port);
        let either = if self.rng.below(2) == 0 { peer } else { stranger };
        match kind {
            Kind::Flipped => {
                let bit = self.rng.below(8 * bytes.len() as u32);
                bytes[bit as usize / 8] ^= 1 << (bit % 8);
                // In plain mode a changed payload is accepted, because it cannot be recognised.
                (either, bytes)
            }
            Kind::CutShort => {
                bytes.truncate(self.rng.below(bytes.len() as u32) as usize);
                (either, bytes)
            }
            Kind::Replayed => (peer, bytes),
            Kind::ReplayedElsewhere => (stranger, bytes),
            Kind::Forged => (stranger, self.forged(&bytes)),
            Kind::ForgedByPeer => (peer, self.forged(&bytes)),
        }
    }

    /// Returns a packet with a random type in its header, the context number of a recorded packet
    /// (`like`), and a random body. With encryption, every fourth packet is a Hello that is valid
    /// for the victim's key, except for its random content.
    fn forged(&mut self, like: &[u8]) -> Vec<u8> {
        let mut bytes = vec![VERSION << 4 | (1 + self.rng.below(11) as u8)];
        bytes.extend_from_slice(&[self.rng.below(16) as u8, self.rng.below(3) as u8, 0]);
        bytes.extend_from_slice(&like[4..HEADER_BYTES]);
        let room = self.rng.below(200) as usize;
        bytes.extend((0..room).map(|_| self.rng.below(256) as u8));
        let key = match &self.protection {
            Protection::Static(_) => self.victim.public_key(),
            Protection::JobKey(key) => Some(*key),
            Protection::Plain => None,
        };
        if let Some(key) = key.filter(|_| self.rng.below(4) == 0) {
            let noise: Vec<u8> = (0..120).map(|_| self.rng.below(256) as u8).collect();
            let context = self.rng.next_u64() as u32 | 1;
            let mut hello = Hello { mac: [0; 16], context, cookie: [0; 16], noise: &noise };
            let mut rest = Vec::new();
            hello.encode_rest(&mut rest);
            hello.mac = HelloKey::of(&key).mac(&rest);
            bytes = vec![VERSION << 4 | 4];
            bytes.resize(HEADER_BYTES, 0);
            hello.encode(&mut bytes);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    /// A short form of `cargo xtask hostile`.
    #[test]
    fn hostile_packets_move_counters_and_nothing_else() {
        super::run(10_000, 1).unwrap();
    }
}
