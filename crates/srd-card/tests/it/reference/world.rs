//! The card under test and the naive card, which get the same input. The frames that the guest
//! receives, the frames to peers, and all counters must be equal.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;

use srd_card::frame::ChunkPosition;
use srd_card::packet::Packet;
use srd_card::{
    Config, Express, FRAME_QPN, FlowKey, Guest, OFFER_QPN, PeerSettings, PeerSlot, Prefix,
};
use srd_proto::time::{Duration, Instant};
use srd_proto::{
    Config as CoreConfig, Delivery, Ecn, Endpoint, Entropy, Epoch, Event, PacketMeta, PacketRef,
    PeerConfig, PeerId, Qpn, ReceiveBuffers, Status, TransmitBuf,
};

use super::card::{Card, Transmission};
use super::order::Chunk;
use super::packets::OFFLOAD_BYTES;

/// Number of machines: machine 0 has the card under test, the other machines are its peers.
pub(crate) const MACHINES: usize = 4;
const MTU: u16 = 1400;
const PACKET_BYTES_MAX: u16 = 1472;
/// Simulated time between two steps of the endpoints and the card.
const STEP: Duration = Duration::from_micros(20);
/// Steps without a packet after which all activity has ended.
const QUIET_STEPS: u32 = 40;

/// Frames that the guest has received since the last comparison, by flow; and the number of all
/// frames that it has received.
#[derive(Default)]
pub(crate) struct ReceivedFrames(BTreeMap<FlowKey, Vec<Vec<u8>>>, u64);

impl Guest for ReceivedFrames {
    fn deliver(&mut self, frame: &[u8]) {
        let packet = Packet::read(&frame[OFFLOAD_BYTES..]).unwrap();
        let icmp = &frame[OFFLOAD_BYTES + packet.transport_at..];
        let is_answer = matches!((packet.protocol, icmp[0]), (1, 3) | (58, 2));
        // Of an ICMP answer, only the packet that it quotes is compared.
        let quoted = is_answer.then(|| icmp[8..][..packet.transport_at + 8].to_vec());
        let seen = quoted.unwrap_or_else(|| frame.to_vec());
        self.0.entry(FlowKey::of(&packet)).or_default().push(seen);
        self.1 += 1;
    }
}

/// Chunks of a frame, each with its offset.
type Parts = Vec<(usize, Vec<u8>)>;

/// A peer: a transport endpoint that keeps the frames that it receives.
pub(crate) struct Machine {
    endpoint: Endpoint,
    pub(crate) id: Option<PeerId>,
    pub(crate) slot: Option<PeerSlot>,
    /// Frames of which some chunks have arrived, by flow number and sequence number.
    parts: BTreeMap<(u32, u16), Parts>,
    /// Flags of the last offer that the peer received; `None` if it received no offer.
    offer: Option<u8>,
}

pub(crate) struct World {
    pub(crate) express: Express,
    pub(crate) endpoint: Endpoint,
    pub(crate) naive: Card,
    pub(crate) machines: Vec<Machine>,
    pub(crate) now: Instant,
    guest: ReceivedFrames,
    sent: BTreeMap<(usize, FlowKey), Vec<Transmission>>,
    /// Number of frames that peers have received.
    arrived: u64,
    /// Flows by their numbers: by the numbers in the packets of the card, and by the numbers of the
    /// naive card.
    numbers: [BTreeMap<u64, (usize, FlowKey)>; 2],
    /// `user` value of the datagram whose completion was reported last.
    pub(crate) last_user: Option<u64>,
    buf: TransmitBuf,
}

fn outer(machine: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1 + u8::try_from(machine).unwrap()], 7471))
}

/// Compares two maps by flow; a difference is printed in short form.
fn assert_same<K: Ord + Debug, T: PartialEq + Debug>(
    what: &str,
    card: &BTreeMap<K, Vec<T>>,
    naive: &BTreeMap<K, Vec<T>>,
) {
    let short = |list: Option<&Vec<T>>| -> Vec<String> {
        let show = |one: &T| format!("{one:?}").chars().take(400).collect();
        list.map_or(Vec::new(), |list| list.iter().map(show).collect())
    };
    for flow in card.keys().chain(naive.keys()) {
        let (card, naive) = (card.get(flow), naive.get(flow));
        assert!(card == naive, "{what}, {flow:?}: {:#?}, not {:#?}", short(card), short(naive));
    }
}

/// Returns the prefixes of the inner addresses that belong to a machine.
pub(crate) fn own_addresses(machine: usize) -> Vec<Prefix> {
    let texts = [format!("10.0.{machine}.0/24"), format!("fd00:{machine}::/32")];
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn endpoint(machine: usize, now: Instant) -> Endpoint {
    let config = CoreConfig { packet_bytes_max: PACKET_BYTES_MAX, ..CoreConfig::sockets() };
    let seed = u8::try_from(machine).unwrap();
    let mut endpoint = Endpoint::new(config, Epoch(1), [seed; 32], now).unwrap();
    endpoint.open_qp(FRAME_QPN, ReceiveBuffers::Unlimited);
    endpoint.open_qp(OFFER_QPN, ReceiveBuffers::Unlimited);
    endpoint
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut own = endpoint(0, now);
        let secret = srd_proto::Secret::known(seed);
        let config = Config { mtu: MTU, secret, ..Config::default() };
        let fits = own.unreliable_bytes_max() - OFFLOAD_BYTES;
        let naive = Card::new(now, MTU.into(), fits, config.order_wait);
        let express = Express::new(config, &mut own);
        let machines = (0..MACHINES).map(|machine| Machine {
            endpoint: endpoint(machine, now),
            id: None,
            slot: None,
            parts: BTreeMap::new(),
            offer: None,
        });
        let mut world = Self {
            express,
            endpoint: own,
            naive,
            machines: machines.collect(),
            now,
            guest: ReceivedFrames::default(),
            sent: BTreeMap::new(),
            arrived: 0,
            numbers: Default::default(),
            last_user: None,
            buf: TransmitBuf::new(16, 65_000),
        };
        for machine in 1..MACHINES {
            world.add_peer(machine);
        }
        world.drain();
        world
    }

    pub(crate) fn add_peer(&mut self, machine: usize) {
        let config = PeerConfig::at(outer(machine));
        let at = &mut self.machines[machine];
        let id = match at.id {
            Some(id) => id,
            None => self.endpoint.add_peer(self.now, config).unwrap(),
        };
        let allowed = own_addresses(machine);
        let settings =
            PeerSettings { id, allowed: allowed.clone(), express: true, express_udp: true };
        (at.id, at.slot) = (Some(id), Some(self.express.add_peer(self.now, settings)));
        self.naive.add_peer(machine, allowed);
    }

    pub(crate) fn remove_peer(&mut self, machine: usize) {
        self.express.remove_peer(self.machines[machine].slot.take().unwrap());
        self.naive.remove_peer(machine);
    }

    /// Removes a peer from the transport.
    pub(crate) fn disconnect(&mut self, machine: usize) {
        if let Some(id) = self.machines[machine].id.take() {
            self.endpoint.remove_peer(self.now, id);
        }
        if let Some(peer) = self.naive.peers.get_mut(&machine) {
            peer.connected = false;
        }
    }

    pub(crate) fn give(&mut self, frame: &[u8]) {
        self.express.from_guest(self.now, frame.to_vec(), &mut self.guest);
        self.naive.take_from_guest(self.now, frame);
    }

    fn receive(&mut self, machine: usize, dst_qpn: Qpn, imm: u64, reliable: bool, payload: &[u8]) {
        let Some(peer) = self.machines[machine].id else { return };
        let delivery =
            Delivery { peer, src_qpn: dst_qpn, dst_qpn, imm, reliable, ce: false, payload };
        self.express.delivered(self.now, &delivery, &mut self.guest);
    }

    pub(crate) fn receive_plain(&mut self, machine: usize, frame: &[u8]) {
        self.receive(machine, FRAME_QPN, 0, false, frame);
        if self.machines[machine].id.is_some() {
            self.naive.plain(machine, frame);
        }
    }

    pub(crate) fn receive_chunk(&mut self, chunk: Chunk, last: bool) {
        let (machine, flow) = chunk.name;
        let frame_bytes = u16::try_from(chunk.frame_bytes).unwrap();
        let sequence = u16::try_from(chunk.sequence & 0xffff).unwrap();
        let place = ChunkPosition { flow, sequence, chunk: chunk.chunk, last, frame_bytes };
        self.receive(machine, FRAME_QPN, place.encode(), true, &chunk.bytes);
        if self.machines[machine].id.is_some() {
            self.naive.chunk(self.now, chunk);
        }
    }

    /// Delivers an offer of a peer to both cards. `kinds`: whether SRD is on, whether it is on for
    /// UDP, and whether it is on for tunnels.
    pub(crate) fn receive_offer(&mut self, machine: usize, kinds: (bool, bool, bool), asks: bool) {
        let (express, udp, tunnels) = (u8::from(kinds.0), u8::from(kinds.1), u8::from(kinds.2));
        let flags = express | udp << 1 | u8::from(asks) << 2 | tunnels << 3;
        self.receive(machine, OFFER_QPN, 0, true, &[1, flags]);
        if self.machines[machine].id.is_some()
            && let Some(peer) = self.naive.peers.get_mut(&machine)
        {
            peer.offer = Some(kinds);
        }
    }

    /// Handles an event of the transport.
    pub(crate) fn event(&mut self, event: &Event) {
        self.express.event(self.now, event);
        match event {
            Event::PeerDown { peer, .. } => {
                let down = (1..MACHINES).find(|m| self.machines[*m].id == Some(*peer));
                down.into_iter().for_each(|machine| self.naive.peer_down(machine));
            }
            Event::Completed { status: Status::Ok, user, .. } if *user != u64::MAX => {
                self.last_user = Some(*user);
            }
            _ => {}
        }
    }

    /// Reports to both cards that the transport has given up a datagram of a flow.
    pub(crate) fn fail(&mut self, machine: usize, key: &FlowKey, user: u64) {
        let Some(peer) = self.machines[machine].id else { return };
        let (id, status) = (srd_proto::DatagramId(0), Status::RemoteAbort);
        self.express.event(self.now, &Event::Completed { peer, id, user, status });
        self.naive.send_failed(machine, key);
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.express.handle_timeout(self.now, &mut self.guest);
        self.naive.handle_timeout(self.now);
        self.endpoint.handle_timeout(self.now);
        for machine in &mut self.machines {
            machine.endpoint.handle_timeout(self.now);
        }
    }

    /// Sends all frames that wait in either card, and waits until they arrive.
    pub(crate) fn drain(&mut self) {
        self.naive.drain(self.now);
        let mut quiet = 0;
        for _ in 0..100_000 {
            if self.turn() {
                quiet = 0;
            } else if quiet >= QUIET_STEPS && !self.express.has_waiting() {
                return;
            }
            quiet += 1;
            self.pass(STEP);
        }
        panic!("there always is more to send");
    }

    /// Runs the card, the endpoints and the link as far as possible without an advance of the time.
    /// Returns whether there was anything to do.
    fn turn(&mut self) -> bool {
        let mut busy = self.express.pump(self.now, &mut self.endpoint) > 0;
        while let Some(event) = self.endpoint.poll_event() {
            self.event(&event);
        }
        for from in 0..MACHINES {
            loop {
                let Self { endpoint, machines, buf, now, .. } = self;
                let sender = if from == 0 { endpoint } else { &mut machines[from].endpoint };
                while sender.poll_event().is_some_and(|_| from > 0) {}
                buf.clear();
                let Some(transmit) = sender.poll_transmit(*now, buf) else { break };
                busy = true;
                let to = (0..MACHINES).find(|m| outer(*m).ip() == transmit.destination.ip());
                let packets: Vec<Vec<u8>> =
                    buf.segments().map(|(head, body)| [head, body].concat()).collect();
                for packet in packets {
                    self.arrive(from, to.unwrap(), transmit.entropy, packet);
                }
            }
        }
        busy
    }

    fn arrive(&mut self, from: usize, to: usize, entropy: Entropy, mut packet: Vec<u8>) {
        let source = SocketAddr::new(outer(from).ip(), 7471 + entropy.0);
        let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: self.now };
        let whole = PacketRef::Whole(&mut packet);
        let Self { endpoint, machines, now, sent, arrived, numbers, .. } = self;
        if to == 0 {
            assert!(endpoint.handle_packet(*now, meta, whole).is_none(), "peers send nothing");
            return;
        }
        let machine = &mut machines[to];
        let Some(delivery) = machine.endpoint.handle_packet(*now, meta, whole) else { return };
        if delivery.dst_qpn == OFFER_QPN {
            machine.offer = Some(delivery.payload[1]);
            return;
        }
        let (place, frame) = if delivery.reliable {
            let place = ChunkPosition::decode(delivery.imm);
            let parts = machine.parts.entry((place.flow, place.sequence)).or_default();
            let offset = place.offset(delivery.payload.len()).unwrap();
            parts.push((offset, delivery.payload.to_vec()));
            parts.sort();
            let frame: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            if frame.len() < usize::from(place.frame_bytes) {
                return;
            }
            machine.parts.remove(&(place.flow, place.sequence));
            (Some(place), frame)
        } else {
            (None, delivery.payload.to_vec())
        };
        let key = FlowKey::of(&Packet::read(&frame[OFFLOAD_BYTES..]).unwrap());
        let what = match place {
            Some(place) => {
                let number = u64::from(place.flow);
                let owner = numbers[0].entry(number).or_insert((to, key));
                assert_eq!(*owner, (to, key), "two flows have one number");
                Transmission::Srd(number, place.sequence.into(), frame)
            }
            None => Transmission::Plain(frame),
        };
        sent.entry((to, key)).or_default().push(what);
        *arrived += 1;
    }

    /// Returns the frames to peers since the last call. Their flow and sequence numbers are
    /// replaced by numbers that are comparable between the cards.
    fn normal(
        &mut self,
        which: usize,
        sent: BTreeMap<(usize, FlowKey), Vec<Transmission>>,
    ) -> BTreeMap<(usize, FlowKey), Vec<Transmission>> {
        let numbers = &mut self.numbers[which];
        let mut normal = sent;
        for (flow, sent) in &mut normal {
            for what in sent.iter_mut() {
                let Transmission::Srd(number, _, _) = what else { continue };
                numbers.insert(*number, *flow);
                let own = numbers.iter().filter(|(_, owner)| *owner == flow);
                let earlier = own.filter(|(other, _)| **other < *number).count();
                *number = earlier as u64;
            }
            sent.sort_by_key(|what| match what {
                Transmission::Srd(number, sequence, _) => (0, *number, *sequence),
                Transmission::Plain(_) => (1, 0, 0),
            });
        }
        normal.retain(|_, sent| !sent.is_empty());
        normal
    }

    /// Returns the numbers of frames that the guest and the peers have received.
    pub(crate) fn frames(&self) -> (u64, u64) {
        (self.guest.1, self.arrived)
    }

    /// Checks that both cards have delivered the same frames, sent the same frames, and have equal
    /// counters.
    pub(crate) fn compare(&mut self) {
        assert_same("what the guest sees", &self.guest.0, &self.naive.guest);
        self.guest.0.clear();
        self.naive.guest.clear();
        if !self.express.has_waiting() {
            let (real, naive) =
                (std::mem::take(&mut self.sent), std::mem::take(&mut self.naive.sent));
            let (real, naive) = (self.normal(0, real), self.normal(1, naive));
            assert_same("what goes to peers", &real, &naive);
            assert_eq!(self.express.counters(), self.naive.counters());
        }
        assert_eq!(self.express.flow_counts().1, self.naive.order.flows());
        for (machine, peer) in &self.naive.peers {
            let slot = self.machines[*machine].slot.unwrap();
            let report = self.express.report(slot).unwrap();
            if !self.express.has_waiting() {
                assert_eq!(report.traffic, peer.traffic);
            }
            let known = report.offer.map(|offer| (offer.express, offer.udp, offer.tunnels));
            assert_eq!(known, peer.offer);
        }
    }

    /// Checks that the last offer to each peer agrees with the present rules of the card.
    pub(crate) fn compare_offers(&self) {
        for (machine, peer) in self.naive.peers.iter().filter(|(_, peer)| peer.connected) {
            let express = self.naive.express && peer.express;
            let udp = self.naive.udp && peer.udp;
            let tunnels = self.naive.tunnels;
            let willing = u8::from(express) | u8::from(udp) << 1 | u8::from(tunnels) << 3;
            assert_eq!(self.machines[*machine].offer.map(|flags| flags & 11), Some(willing));
        }
    }
}
