//! A `Pair`: two endpoints, a wire whose faults follow from a seed, and checks of its own.

// Each test file uses its part; a test may fail loudly; sizes here are small.
#![allow(dead_code, clippy::unwrap_used, clippy::cast_possible_truncation)]

pub(crate) mod scene;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use srd_proto::rng::Rng;
use srd_proto::{
    Class, Config, Datagram, DownReason, DropReason, Duration, Ecn, Endpoint, Epoch, Event,
    Instant, PacketMeta, PacketRef, PathReport, PeerConfig, PeerId, Protection, Qpn,
    ReceiveBuffers, SendError, Status, TransmitBuf,
};

/// Faults of the wire between the two endpoints.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fault {
    pub(crate) loss_permille: u32,
    pub(crate) duplicate_permille: u32,
    pub(crate) corrupt_headers_permille: u32,
    /// Number of packets in a thousand in which one bit, anywhere, is inverted.
    pub(crate) corrupt_permille: u32,
    pub(crate) jitter: Duration,
    /// Further delay of packets from b to a: the program at endpoint a reads them late.
    pub(crate) answers_late: Duration,
    /// Packets of more UDP payload bytes than this vanish; zero: no packet vanishes because of its
    /// size.
    pub(crate) swallows_above_bytes: usize,
    /// Whether probes vanish; packets must be plain.
    pub(crate) swallows_probes: bool,
    /// Packets from source ports below this port vanish, in both directions.
    pub(crate) dead_ports_below: u16,
    /// If set, packets from source ports outside of this range vanish, in both directions.
    pub(crate) only_ports: Option<(u16, u16)>,
}

const PORT: u16 = 7471;
const ENTROPY_BASE: u16 = 49152;
const DELAY: Duration = Duration::from_micros(6);

/// A packet on the wire.
#[derive(Clone)]
pub(crate) struct InFlight {
    pub(crate) to_b: bool,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) ecn: Ecn,
    pub(crate) bytes: Vec<u8>,
}

impl InFlight {
    /// The type of packet that its header names.
    pub(crate) fn kind(&self) -> u8 {
        self.bytes[0] & 15
    }
}

/// Number of recent packets from which [`Pair::replay`] chooses one.
const RECENT_PACKETS: usize = 64;

pub(crate) struct Pair {
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
    pub(crate) b_at_a: PeerId,
    pub(crate) now: Instant,
    pub(crate) fault: Fault,
    pub(crate) events: Vec<Event>,
    /// Events of endpoint b.
    pub(crate) events_b: Vec<Event>,
    /// Whether each run of the receiver may receive a datagram once. This is the case in plain mode
    /// before the peer has answered.
    pub(crate) again_after_restart: bool,
    /// Greatest age of a replayed packet: a real network holds no packet for longer.
    pub(crate) replays_within: Duration,
    pub(crate) check_payload: bool,
    /// The source port of entropy zero.
    pub(crate) entropy_base: u16,
    /// Whether the application at endpoint a leaves its events unread.
    pub(crate) leave_events: bool,
    /// Decision of the layer above the receiver about each new datagram.
    pub(crate) judge: Box<dyn Fn(u64) -> Status>,
    /// Time by which endpoint b stamps arrivals too late.
    pub(crate) shift_at_b: Duration,
    /// Addresses of endpoints a and b. A packet to any other address is a stray.
    pub(crate) ips: [IpAddr; 2],
    pub(crate) strays: Vec<InFlight>,
    /// Packets that left since this list was last emptied; `None` if the test does not record
    /// packets.
    pub(crate) recorded: Option<Vec<InFlight>>,
    config: Config,
    wire: BTreeMap<(Instant, u64), InFlight>,
    sequence: u64,
    rng: Rng,
    delivered: BTreeSet<u64>,
    delivered_back: BTreeSet<u64>,
    /// Datagrams that the present runs of the two endpoints have received.
    delivered_now: [BTreeSet<u64>; 2],
    /// Packets that left recently, each with its time.
    recent: VecDeque<(Instant, InFlight)>,
    sender: Qpn,
    sent: u64,
    sent_back: u64,
    epoch: u64,
}

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

fn payload(user: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (user as usize * 31 + i) as u8).collect()
}

/// Creates endpoint `n`; with static keys, each endpoint has its own key pair.
fn make(config: &Config, n: u8, epoch: u64, seed: u64, now: Instant) -> Endpoint {
    let mut config = config.clone();
    if let Protection::Static(key) = &mut config.protection {
        key[0] = n;
    }
    let mut bytes = [n; 32];
    bytes[..8].copy_from_slice(&(seed * 1000 + epoch).to_le_bytes());
    // Far apart, because each further context of an endpoint has a larger epoch.
    let mut endpoint = Endpoint::new(config, Epoch(epoch << 32), bytes, now).unwrap();
    endpoint.open_qp(Qpn(7), ReceiveBuffers::Unlimited);
    endpoint
}

/// Adds b as a peer of a, and with static keys a as a peer of b; returns b's identifier at a.
fn introduce(a: &mut Endpoint, b: &mut Endpoint, now: Instant) -> PeerId {
    if a.public_key().is_some() {
        let address = SocketAddr::new(ip(1), PORT);
        b.add_peer(now, PeerConfig::at(address).with_key(a.public_key())).unwrap();
    }
    let address = SocketAddr::new(ip(2), PORT);
    a.add_peer(now, PeerConfig::at(address).with_key(b.public_key())).unwrap()
}

impl Pair {
    pub(crate) fn new(config: Config, seed: u64) -> Self {
        let now = Instant::ZERO;
        let mut a = make(&config, 1, 1, seed, now);
        let mut b = make(&config, 2, 1, seed, now);
        let b_at_a = introduce(&mut a, &mut b, now);
        Self {
            a,
            b,
            b_at_a,
            now,
            fault: Fault::default(),
            events: Vec::new(),
            events_b: Vec::new(),
            again_after_restart: false,
            replays_within: Duration::MAX,
            check_payload: true,
            entropy_base: ENTROPY_BASE,
            leave_events: false,
            judge: Box::new(|_| Status::Ok),
            shift_at_b: Duration::ZERO,
            ips: [ip(1), ip(2)],
            strays: Vec::new(),
            recorded: None,
            config,
            wire: BTreeMap::new(),
            sequence: 0,
            rng: Rng::new(seed),
            delivered: BTreeSet::new(),
            delivered_back: BTreeSet::new(),
            delivered_now: [BTreeSet::new(), BTreeSet::new()],
            recent: VecDeque::new(),
            sender: Qpn(1),
            sent: 0,
            sent_back: 0,
            epoch: 1,
        }
    }

    pub(crate) fn restart_b(&mut self) {
        self.epoch += 1;
        self.restart_b_with(self.epoch);
    }

    /// Restarts endpoint b, as after a crash, with this epoch.
    pub(crate) fn restart_b_with(&mut self, epoch: u64) {
        self.delivered_now[1].clear();
        self.b = make(&self.config, 2, epoch, epoch + 7, self.now);
        let (address, public_key) = (SocketAddr::new(ip(1), PORT), self.a.public_key());
        if public_key.is_some() {
            self.b.add_peer(self.now, PeerConfig::at(address).with_key(public_key)).unwrap();
        }
    }

    /// Restarts endpoint a, as after a crash, with b's key as a peer. Endpoint b keeps its state.
    pub(crate) fn restart_a(&mut self) {
        self.epoch += 1;
        self.delivered_now[0].clear();
        self.a = make(&self.config, 1, self.epoch, self.epoch, self.now);
        let (address, public_key) = (SocketAddr::new(ip(2), PORT), self.b.public_key());
        self.b_at_a =
            self.a.add_peer(self.now, PeerConfig::at(address).with_key(public_key)).unwrap();
    }

    /// Restarts endpoint b without any peer.
    pub(crate) fn forget_a_at_b(&mut self) {
        self.epoch += 1;
        self.b = make(&self.config, 2, self.epoch, self.epoch, self.now);
    }

    /// Replaces b by an endpoint with another key than the key configured at a.
    pub(crate) fn replace_b_key(&mut self) {
        self.b = make(&self.config, 3, 1, 99, self.now);
    }

    /// Sends `n` datagrams from b to a.
    pub(crate) fn send_back(&mut self, n: u64, bytes: usize) {
        let address = SocketAddr::new(ip(1), PORT);
        let public_key = self.a.public_key();
        let to = self.b.peer_at(address).unwrap_or_else(|| {
            self.b.add_peer(self.now, PeerConfig::at(address).with_key(public_key)).unwrap()
        });
        for _ in 0..n {
            let mut d = self.datagram(Qpn(1), Qpn(7), bytes);
            self.sent -= 1;
            d.imm = 1 << 40 | self.sent_back;
            self.sent_back += 1;
            d.payload = payload(d.imm, bytes).into();
            self.b.send(self.now, to, d).unwrap();
        }
    }

    /// Sends one datagram: from b to a if `back`, otherwise from a to b. Returns its number, or
    /// `None` if the datagram is refused.
    pub(crate) fn offer(&mut self, back: bool, bytes: usize) -> Option<u64> {
        let mut d = self.datagram(self.sender, Qpn(7), bytes);
        if !back {
            return self.a.send(self.now, self.b_at_a, d.clone()).ok().map(|_| d.user);
        }
        let (address, key) = (SocketAddr::new(ip(1), PORT), self.a.public_key());
        let to = self.b.peer_at(address).unwrap_or_else(|| {
            self.b.add_peer(self.now, PeerConfig::at(address).with_key(key)).unwrap()
        });
        (d.imm, d.user) = (1 << 40 | d.imm, 1 << 40 | d.user);
        d.payload = payload(d.imm, bytes).into();
        self.b.send(self.now, to, d.clone()).ok().map(|_| d.user)
    }

    /// Whether the datagram with this number has ever arrived.
    pub(crate) fn has_delivered(&self, user: u64) -> bool {
        self.delivered.contains(&user) || self.delivered_back.contains(&user)
    }

    /// Number of packets that endpoints a and b dropped, by reason.
    pub(crate) fn drops(&self) -> [Vec<(DropReason, u64)>; 2] {
        [&self.a, &self.b].map(|endpoint| {
            let drops = DropReason::ALL.iter().copied().zip(endpoint.stats().drops);
            drops.filter(|(_, n)| *n > 0).collect()
        })
    }

    pub(crate) fn kill_paths_below(&mut self, ports: u16) {
        self.fault.dead_ports_below = ENTROPY_BASE + ports;
    }

    /// Delivers one of the packets that left recently again, from another address if `elsewhere`.
    pub(crate) fn replay(&mut self, back: bool, which: u8, elsewhere: bool) {
        let young = |sent_at: Instant| self.now.since(sent_at) < self.replays_within;
        let mut these = self.recent.iter().filter(|(at, packet)| packet.to_b != back && young(*at));
        let Some((_, packet)) = these.nth(usize::from(which) % RECENT_PACKETS) else { return };
        let mut source = packet.source;
        if elsewhere {
            source.set_ip(ip(113));
        }
        let copy = InFlight { source, bytes: packet.bytes.clone(), ..*packet };
        self.deliver(copy);
        self.drain();
    }

    pub(crate) fn roam_b(&mut self, to: u8) {
        self.ips[1] = ip(to);
    }

    /// Removes peer b from endpoint a, and adds it again.
    pub(crate) fn remove_and_add_b(&mut self) {
        self.a.remove_peer(self.now, self.b_at_a);
        self.delivered_now[0].clear();
        let peer = PeerConfig::at(SocketAddr::new(ip(2), PORT)).with_key(self.b.public_key());
        self.b_at_a = self.a.add_peer(self.now, peer).unwrap();
    }

    /// Closes the queue pair from which endpoint a sends, and uses a new queue pair.
    pub(crate) fn close_sender(&mut self) {
        self.a.close_qp(self.now, self.sender);
        self.sender = Qpn(self.sender.0 + 1);
    }

    /// Reads the waiting events of both endpoints.
    pub(crate) fn hear_events(&mut self) {
        self.events.extend(std::iter::from_fn(|| self.a.poll_event()));
        self.events_b.extend(std::iter::from_fn(|| self.b.poll_event()));
    }

    pub(crate) fn delivered_back(&self) -> usize {
        self.delivered_back.len()
    }

    fn datagram(&mut self, from: Qpn, to: Qpn, bytes: usize) -> Datagram {
        let user = self.sent;
        self.sent += 1;
        Datagram {
            src_qpn: from,
            dst_qpn: to,
            imm: user,
            payload: payload(user, bytes).into(),
            class: Class::Bulk,
            user,
        }
    }

    pub(crate) fn send_many(&mut self, n: u64, bytes: usize) {
        self.send_all(Qpn(1), Qpn(7), n, bytes);
    }

    pub(crate) fn send_to(&mut self, to: Qpn, n: u64, bytes: usize) {
        self.send_all(Qpn(1), to, n, bytes);
    }

    pub(crate) fn send_from(&mut self, from: Qpn, n: u64, bytes: usize) {
        self.send_all(from, Qpn(7), n, bytes);
    }

    fn send_all(&mut self, from: Qpn, to: Qpn, n: u64, bytes: usize) {
        for _ in 0..n {
            let d = self.datagram(from, to, bytes);
            while self.a.send(self.now, self.b_at_a, d.clone()) == Err(SendError::QueueFull) {
                self.run_for(Duration::from_micros(5));
            }
        }
    }

    pub(crate) fn try_send(&mut self, user: u64) -> Result<(), SendError> {
        let d = Datagram { user, ..self.datagram(Qpn(1), Qpn(7), 10) };
        self.a.send(self.now, self.b_at_a, d).map(|_| ())
    }

    fn drain(&mut self) {
        let mut buf = TransmitBuf::new(1, 65_000);
        for to_b in [true, false] {
            let mut packets = 0;
            loop {
                buf.clear();
                let endpoint = if to_b { &mut self.a } else { &mut self.b };
                let Some(t) = endpoint.poll_transmit(self.now, &mut buf) else { break };
                packets += 1;
                assert!(packets < 100_000, "poll_transmit never ends");
                let source =
                    SocketAddr::new(self.ips[usize::from(!to_b)], self.entropy_base + t.entropy.0);
                assert_eq!(t.segments, 1);
                let (head, payload) = buf.segments().next().unwrap();
                assert_eq!(head.len() + payload.len(), t.total_bytes);
                let mut bytes = head.to_vec();
                bytes.extend_from_slice(payload);
                let destination = t.destination;
                self.put_on_wire(InFlight { to_b, source, destination, ecn: t.ecn, bytes });
            }
            let endpoint = if to_b { &self.a } else { &self.b };
            if let Some(at) = endpoint.poll_timeout() {
                assert!(at > self.now, "a timer livelock at {:?}", self.now);
            }
        }
        while !self.leave_events
            && let Some(event) = self.a.poll_event()
        {
            self.events.push(event);
        }
        while let Some(event) = self.b.poll_event() {
            self.events_b.push(event);
        }
    }

    fn put_on_wire(&mut self, packet: InFlight) {
        if self.recent.len() == RECENT_PACKETS {
            self.recent.pop_front();
        }
        self.recent.push_back((self.now, packet.clone()));
        let f = self.fault;
        if let Some(recorded) = &mut self.recorded {
            recorded.push(packet.clone());
        }
        if packet.destination.ip() != self.ips[usize::from(packet.to_b)] {
            self.strays.push(packet);
            return;
        }
        if f.swallows_above_bytes > 0 && packet.bytes.len() > f.swallows_above_bytes {
            return;
        }
        if f.swallows_probes && packet.bytes[0] & 15 == 3 {
            return;
        }
        let port = packet.source.port();
        if f.only_ports.is_some_and(|(first, last)| !(first..=last).contains(&port)) {
            return;
        }
        if port < f.dead_ports_below || self.rng.below(1000) < f.loss_permille {
            return;
        }
        let late = if packet.to_b { Duration::ZERO } else { f.answers_late };
        let copies = 1 + u64::from(self.rng.below(1000) < f.duplicate_permille);
        for _ in 0..copies {
            let jitter = self.rng.below(f.jitter.as_nanos() as u32 + 1);
            let mut bytes = packet.bytes.clone();
            if self.rng.below(1000) < f.corrupt_headers_permille {
                let at = self.rng.below(bytes.len().min(52) as u32) as usize;
                bytes[at] ^= 1 << self.rng.below(8);
            }
            if self.rng.below(1000) < f.corrupt_permille {
                let at = self.rng.below(bytes.len() as u32) as usize;
                bytes[at] ^= 1 << self.rng.below(8);
            }
            self.sequence += 1;
            let arrives = self.now + DELAY + late + Duration::from_nanos(u64::from(jitter));
            let copy = InFlight { bytes, ..packet };
            self.wire.insert((arrives, self.sequence), copy);
        }
    }

    /// Delivers a packet at once, with the source address `source`.
    pub(crate) fn inject(&mut self, packet: &InFlight, source: SocketAddr) {
        self.deliver(InFlight { source, ..packet.clone() });
    }

    fn deliver(&mut self, mut packet: InFlight) {
        let shift = if packet.to_b { self.shift_at_b } else { Duration::ZERO };
        let (source, received_at) = (packet.source, self.now + shift);
        let meta = PacketMeta { source, local: 0, ecn: packet.ecn, received_at };
        let endpoint = if packet.to_b { &mut self.b } else { &mut self.a };
        let whole = PacketRef::Whole(&mut packet.bytes);
        let judge = &self.judge;
        if let Some(d) = endpoint.handle_packet_with(self.now, meta, whole, |d| judge(d.imm))
            && self.check_payload
        {
            let delivered =
                if packet.to_b { &mut self.delivered } else { &mut self.delivered_back };
            let new = delivered.insert(d.imm);
            let new_here = self.delivered_now[usize::from(packet.to_b)].insert(d.imm);
            let fine = new || self.again_after_restart && new_here;
            assert!(fine, "datagram {} delivered twice", d.imm);
            assert_eq!(d.payload, payload(d.imm, d.payload.len()), "payload changed");
        }
    }

    fn next_moment(&self) -> Option<Instant> {
        let wire = self.wire.keys().next().map(|(at, _)| *at);
        wire.into_iter().chain(self.a.poll_timeout()).chain(self.b.poll_timeout()).min()
    }

    /// Runs until `span` has passed.
    pub(crate) fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        self.drain();
        while let Some(at) = self.next_moment().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            while let Some(entry) = self.wire.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let packet = entry.remove();
                self.deliver(packet);
            }
            self.a.handle_timeout(self.now);
            self.b.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    /// Runs until every datagram has completed, at most `span`.
    pub(crate) fn run_until_idle(&mut self, span: Duration) {
        let end = self.now + span;
        // Only new events are counted, because there may be many.
        let (mut read, mut ended) = (0, 0);
        while self.now < end {
            let new = self.events[read..].iter();
            ended += new.filter(|event| matches!(event, Event::Completed { .. })).count() as u64;
            read = self.events.len();
            if ended >= self.sent {
                return;
            }
            self.run_for(Duration::from_micros(100));
        }
    }

    pub(crate) fn completions(&self) -> Vec<Status> {
        self.events
            .iter()
            .filter_map(|e| match e {
                Event::Completed { status, .. } => Some(*status),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn down_reasons(&self) -> Vec<DownReason> {
        self.events
            .iter()
            .filter_map(|e| match e {
                Event::PeerDown { reason, .. } => Some(*reason),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn delivered(&self) -> usize {
        self.delivered.len()
    }

    pub(crate) fn paths(&self) -> Vec<PathReport> {
        self.a.paths(self.b_at_a)
    }

    pub(crate) fn assert_all_ok(&self) {
        let other = self.completions().into_iter().find(|status| *status != Status::Ok);
        assert_eq!(other, None, "with {:?}", self.fault);
    }

    pub(crate) fn assert_all_completed(&self, n: usize) {
        let statuses = self.completions();
        assert_eq!(statuses.len(), n, "completions at {:?}", self.now);
        assert!(statuses.iter().all(|s| *s == Status::Ok), "{statuses:?}");
        assert_eq!(self.delivered.len(), n);
        let users: BTreeSet<u64> = self
            .events
            .iter()
            .filter_map(|e| match e {
                Event::Completed { user, .. } => Some(*user),
                _ => None,
            })
            .collect();
        assert_eq!(users.len(), n, "one completion per datagram");
    }
}
