//! Endpoints over a lossy wire. The name of each test is the rule that the test shows.

use crate::Access;
use std::vec::Vec;

use crate::lossy_wire::{Arrival, Wire, address};
use crate::ram::Ram;
use srd_proto::rng::Rng;
use srd_proto::{Config as CoreConfig, Duration, Endpoint, Epoch, Instant, PacketRef, TransmitBuf};

use super::*;
use crate::layer::{
    Iov, Kind, Message, OperationCompletion, Outcome, Peer, Receive, Refused, Rma, RmaIov,
    Selector, Shared, Until, World,
};

/// Bytes of each end's memory. Region 1 is its second half.
const RAM_BYTES: usize = 1 << 20;
const KEY: u64 = 77;
const BASE: u64 = 0x7000_0000;

struct End {
    endpoint: Endpoint,
    direct: Direct,
    ram: Ram,
}

struct Net {
    ends: Vec<End>,
    now: Instant,
    wire: Wire,
    /// End of which only the transport runs, and no layer above it.
    frozen: Option<usize>,
}

fn config(service: Service) -> Config {
    Config { service, operations_max: 64, receives_max: 64, peers_max: 16, seed: 3 }
}

impl Net {
    fn new(services: &[Service]) -> Self {
        Self::with(services, Duration::from_millis(50))
    }

    fn with(services: &[Service], keepalive: Duration) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let end = |(end, service): (usize, &Service)| {
            let core = CoreConfig {
                packet_bytes_max: 1472,
                keepalive,
                answer_timeout: Duration::from_millis(500),
                peer_timeout: Duration::from_millis(500),
                mtu_discovery: false,
                ..CoreConfig::sockets()
            };
            let seed = [u8::try_from(end).unwrap(); 32];
            let mut endpoint = Endpoint::new(core, Epoch(1), seed, now).unwrap();
            let direct = Direct::new(config(*service), &mut endpoint, address(end));
            End { endpoint, direct, ram: Ram::new(RAM_BYTES) }
        };
        Self {
            ends: services.iter().enumerate().map(end).collect(),
            now,
            wire: Wire { loss_permille: 50, jitter_us: 300, ..Wire::new() },
            frozen: None,
        }
    }

    fn two(service: Service) -> (Self, Peer) {
        let mut net = Self::new(&[service; 2]);
        let to = net.peer(0, 1);
        (net, to)
    }

    fn on<R>(&mut self, end: usize, call: impl FnOnce(&mut Direct, &mut World<'_>) -> R) -> R {
        let End { endpoint, direct, ram } = &mut self.ends[end];
        call(direct, &mut World { now: self.now, endpoint, memory: ram })
    }

    fn peer(&mut self, at: usize, of: usize) -> Peer {
        self.on(at, |direct, world| direct.add_peer(world, address(of)).unwrap())
    }

    fn send(&mut self, to: Peer, at: u64, length: u64) {
        self.try_send(message(to, &[Iov { addr: at, length }])).unwrap();
    }

    fn try_send(&mut self, message: Message<'_>) -> Result<(), Refused> {
        self.on(0, |direct, world| direct.send(world, message))
    }

    fn recv(&mut self, end: usize, context: u64, at: u64, length: u64) {
        let iov = [Iov { addr: at, length }];
        self.try_recv(end, &Receive { context, ..receive(&iov) }).unwrap();
    }

    fn try_recv(&mut self, end: usize, receive: &Receive<'_>) -> Result<(), Refused> {
        self.ends[end].direct.recv(receive)
    }

    fn fill(&mut self, end: usize, at: usize, length: usize, seed: u64) {
        let mut rng = Rng::new(seed);
        for byte in &mut self.ends[end].ram.0[at..at + length] {
            *byte = u8::try_from(rng.below(256)).unwrap();
        }
    }

    fn bytes(&self, end: usize, at: usize, length: usize) -> &[u8] {
        &self.ends[end].ram.0[at..at + length]
    }

    fn done(&mut self, end: usize) -> Vec<OperationCompletion> {
        core::iter::from_fn(|| self.ends[end].direct.poll()).collect()
    }

    fn outcomes(&mut self, end: usize) -> Vec<(Kind, u64, Outcome)> {
        self.done(end).iter().map(|d| (d.kind, d.context, d.outcome)).collect()
    }

    fn drain(&mut self) {
        let mut buf = TransmitBuf::new(16, 65_000);
        for end in 0..self.ends.len() {
            loop {
                let frozen = self.frozen == Some(end);
                let took = !frozen && self.on(end, |direct, world| direct.pump(world));
                let End { endpoint, direct, .. } = &mut self.ends[end];
                buf.clear();
                let transmit = endpoint.poll_transmit(self.now, &mut buf);
                let mut events = 0;
                while let Some(event) = endpoint.poll_event() {
                    direct.event(self.now, &event);
                    events += 1;
                }
                match transmit {
                    Some(t) => self.wire.put(self.now, end, &t, &buf),
                    None if took || events > 0 => {}
                    None => break,
                }
            }
        }
    }

    fn run_ms(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        loop {
            self.drain();
            let timers = self.ends.iter().filter_map(|end| end.endpoint.poll_timeout());
            let next = self.wire.next().into_iter().chain(timers).min();
            let Some(next) = next.filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(next);
            while let Some(Arrival { to, meta, mut bytes }) = self.wire.take(self.now) {
                let Some(End { endpoint, direct, ram }) = self.ends.get_mut(to) else { continue };
                let (now, whole) = (self.now, PacketRef::Whole(&mut bytes));
                endpoint.handle_packet_with(now, meta, whole, |d| direct.admit(now, d, ram));
            }
            for end in &mut self.ends {
                end.endpoint.handle_timeout(self.now);
            }
        }
    }
}

fn message(to: Peer, iov: &[Iov]) -> Message<'_> {
    let until = Until::Transmitted;
    Message { to, tag: None, iov, data: None, context: 1, until, signaled: true }
}

fn receive(iov: &[Iov]) -> Receive<'_> {
    let want = Selector { tag: 0, ignore: u64::MAX, source: None };
    Receive { tagged: false, want, iov, context: 2, multi: None, signaled: true }
}

const SENT: (Kind, u64, Outcome) = (Kind::Send, 1, Outcome::Ok);

#[test]
fn messages_of_every_length_arrive_once_from_pieces_into_pieces_with_data_and_sender() {
    for service in [Service::Datagrams, Service::Direct] {
        let (mut net, to) = Net::two(service);
        let most = net.ends[0].direct.message_bytes_max();
        net.fill(0, 0, 2000, 5);
        for length in [0, 1, 700, most] {
            let cut = length / 3;
            let from = [Iov { addr: 0, length: cut }, Iov { addr: cut, length: length - cut }];
            let into = [Iov { addr: 5000, length: 10 }, Iov { addr: 5010, length: 1990 }];
            net.try_recv(1, &receive(&into)).unwrap();
            net.try_send(Message { data: Some(9), ..message(to, &from) }).unwrap();
            net.run_ms(200);
            assert_eq!(net.outcomes(0), [SENT], "{length}");
            let [done] = net.done(1)[..] else { panic!("one receive ends") };
            assert_eq!((done.kind, done.context, done.length), (Kind::Receive, 2, length));
            assert_eq!((done.data, done.outcome), (Some(9), Outcome::Ok));
            let from = net.ends[1].direct.address_of(done.peer.unwrap());
            assert_eq!(from, Some(address(0)));
            let length = usize::try_from(length).unwrap();
            assert!(net.bytes(0, 0, length) == net.bytes(1, 5000, length), "{length}");
        }
        assert!(net.ends.iter().all(|end| end.direct.is_quiet()));
    }
}

#[test]
fn an_injected_message_is_the_one_of_the_call() {
    let (mut net, to) = Net::two(Service::Direct);
    net.fill(0, 0, 1000, 5);
    let sent = net.bytes(0, 0, 1000).to_vec();
    net.recv(1, 2, 0, 1000);
    let piece = [Iov { addr: 0, length: 1000 }];
    net.try_send(Message { until: Until::Injected, ..message(to, &piece) }).unwrap();
    net.fill(0, 0, 1000, 6);
    net.run_ms(100);
    assert!(net.bytes(1, 0, 1000) == sent);
    assert_eq!(net.outcomes(0), [SENT]);
}

#[test]
fn a_datagram_without_a_receive_is_lost_and_a_direct_message_waits_for_one() {
    for (service, arrives) in [(Service::Datagrams, false), (Service::Direct, true)] {
        let (mut net, to) = Net::two(service);
        net.send(to, 0, 10);
        net.run_ms(3000);
        assert_eq!(net.outcomes(0).len(), usize::from(!arrives));
        net.recv(1, 2, 0, 10);
        net.run_ms(3000);
        let received = net.outcomes(1) == [(Kind::Receive, 2, Outcome::Ok)];
        assert_eq!((received, net.outcomes(0).len()), (arrives, usize::from(arrives)));
        assert!(net.ends[1].direct.device_counters().rnr > 0);
    }
}

#[test]
fn what_is_too_long_for_its_receive_leaves_it_alone() {
    let ends = [(Service::Datagrams, Outcome::Ok), (Service::Direct, Outcome::TooLong)];
    for (service, outcome) in ends {
        let (mut net, to) = Net::two(service);
        net.recv(1, 2, 0, 10);
        net.send(to, 0, 11);
        net.run_ms(200);
        assert_eq!(net.outcomes(0), [(Kind::Send, 1, outcome)]);
        assert!(net.done(1).is_empty());
        assert_eq!(net.ends[1].direct.device_counters().bad_length, 1);
        net.send(to, 0, 10);
        net.run_ms(200);
        assert_eq!(net.done(1).len(), 1);
    }
}

#[test]
fn services_do_not_hear_each_other() {
    let mut net = Net::new(&[Service::Datagrams, Service::Direct]);
    let to = net.peer(0, 1);
    net.recv(1, 2, 0, 10);
    net.send(to, 0, 10);
    net.run_ms(200);
    assert_eq!(net.outcomes(0), [(Kind::Send, 1, Outcome::Protocol)]);
    assert!(net.done(1).is_empty());
}

#[test]
fn a_peer_that_is_not_there_fails_what_is_sent_to_it() {
    let (mut net, to) = Net::two(Service::Datagrams);
    net.wire.dead = Some(1);
    net.send(to, 0, 10);
    net.run_ms(3000);
    assert_eq!(net.outcomes(0), [(Kind::Send, 1, Outcome::Unreachable)]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (mut net, to) = Net::two(Service::Datagrams);
    let one = [Iov { addr: 0, length: 8 }];
    let most = net.ends[0].direct.message_bytes_max();
    let long = [Iov { addr: 0, length: most + 1 }];
    let too_long = net.try_send(message(to, &long));
    assert_eq!(too_long, Err(Refused::TooLong));
    let (three, endless) = ([one[0]; 3], [Iov { addr: 0, length: u64::MAX }; 2]);
    let wrong = [
        Message { tag: Some(1), ..message(to, &one) },
        Message { data: Some(1 << 32), ..message(to, &one) },
        message(to, &three),
        message(to, &endless),
    ];
    for wrong in wrong {
        assert_eq!(net.try_send(wrong), Err(Refused::Invalid), "{wrong:?}");
    }
    assert_eq!(net.try_send(message(Peer(9), &one)), Err(Refused::NoSuchPeer));
    let want = Selector { tag: 0, ignore: 0, source: Some(0) };
    let wrong = [
        Receive { tagged: true, ..receive(&one) },
        Receive { want, ..receive(&one) },
        Receive { multi: Some(8), ..receive(&one) },
        receive(&three),
    ];
    for wrong in wrong {
        assert_eq!(net.try_recv(0, &wrong), Err(Refused::Invalid), "{wrong:?}");
    }
    let far = [RmaIov { addr: BASE, length: 8, rkey: KEY }];
    let datagrams_do_not_write = rma(&mut net, to, false, &one, &far);
    assert_eq!(datagrams_do_not_write, Err(Refused::Invalid));
    let own = net.on(0, |direct, world| direct.add_peer(world, address(0)));
    assert_eq!(own, Err(Refused::Invalid));
}

#[test]
fn sends_receives_and_peers_have_their_limits() {
    let (mut net, to) = Net::two(Service::Direct);
    for n in 0..64 {
        net.send(to, 0, 8);
        net.recv(0, n, 0, 8);
    }
    let one = [Iov { addr: 0, length: 8 }];
    assert_eq!(net.try_send(message(to, &one)), Err(Refused::Again));
    assert_eq!(net.try_recv(0, &receive(&one)), Err(Refused::Again));
    for n in 0..64 {
        net.recv(1, n, 0, 8);
    }
    net.run_ms(500);
    // Without a poll no request is free: ended requests are still in the queue.
    assert_eq!(net.done(0).len(), 64);
    net.try_send(message(to, &one)).unwrap();
    for of in 2..17 {
        net.peer(0, of);
    }
    let more = net.on(0, |direct, world| direct.add_peer(world, address(17)));
    assert_eq!(more, Err(Refused::Again));
}

fn rma(
    net: &mut Net,
    to: Peer,
    read: bool,
    local: &[Iov],
    remote: &[RmaIov],
) -> Result<(), Refused> {
    let until = Until::Transmitted;
    let rma = Rma { to, read, local, remote, data: None, context: 3, until, signaled: true };
    net.on(0, |direct, world| direct.rma(world, rma))
}

#[test]
fn memory_is_written_and_read_also_of_who_never_named_us_and_with_data() {
    let (mut net, to) = Net::two(Service::Direct);
    let access = Access { remote_write: true, remote_read: true, ..Access::default() };
    let shared = Shared { region: 1, addr: BASE, length: 100_000, rkey: KEY, access };
    net.ends[1].direct.share(shared).unwrap();
    net.fill(0, 0, 50_000, 5);
    for length in [0u64, 8, 50_000] {
        let far = [RmaIov { addr: BASE, length, rkey: KEY }];
        for (read, addr, data) in [(false, 0, Some(6)), (true, 100_000, None)] {
            let (local, remote) = ([Iov { addr, length }], &far);
            let (context, until, signaled) = (3, Until::Transmitted, true);
            let rma = Rma { to, read, local: &local, remote, data, context, until, signaled };
            net.on(0, |direct, world| direct.rma(world, rma)).unwrap();
            net.run_ms(300);
            let kind = if read { Kind::Read } else { Kind::Write };
            assert_eq!(net.outcomes(0), [(kind, 3, Outcome::Ok)], "{length}");
        }
        let told: Vec<_> = net.done(1).iter().map(|d| (d.kind, d.data, d.length)).collect();
        assert_eq!(told, [(Kind::RemoteWrite, Some(6), length)]);
        let length = usize::try_from(length).unwrap();
        assert!(net.bytes(0, 0, length) == net.bytes(1, RAM_BYTES / 2, length));
        assert!(net.bytes(0, 0, length) == net.bytes(0, 100_000, length));
    }
    net.ends[1].direct.unshare(KEY);
    let (local, far) = ([Iov { addr: 0, length: 8 }], RmaIov { addr: BASE, length: 8, rkey: KEY });
    rma(&mut net, to, false, &local, &[far]).unwrap();
    net.run_ms(100);
    assert_eq!(net.outcomes(0), [(Kind::Write, 3, Outcome::BadKey)]);
    let two = rma(&mut net, to, false, &local, &[far, far]);
    assert_eq!(two, Err(Refused::Invalid));
    let unlike = rma(&mut net, to, false, &local, &[RmaIov { length: 9, ..far }]);
    assert_eq!(unlike, Err(Refused::Invalid));
}

#[test]
fn regression_a_peer_that_ends_after_it_has_acknowledged_a_read_is_unresponsive() {
    let mut net = Net::with(&[Service::Direct; 2], Duration::MAX);
    net.wire = Wire::new();
    let to = net.peer(0, 1);
    net.recv(1, 1, 0, 8);
    net.send(to, 0, 8);
    net.run_ms(300);
    assert_eq!(net.outcomes(0), [(Kind::Send, 1, Outcome::Ok)]);
    let (local, far) =
        ([Iov { addr: 0, length: 8 }], [RmaIov { addr: BASE, length: 8, rkey: KEY }]);
    let access = Access { remote_read: true, ..Access::default() };
    let shared = Shared { region: 1, addr: BASE, length: 100_000, rkey: KEY, access };
    net.ends[1].direct.share(shared).unwrap();
    // A peer that answers is probed, and nothing changes.
    assert!(!net.ends[0].direct.awaits_peers());
    net.frozen = Some(1);
    rma(&mut net, to, true, &local, &far).unwrap();
    for _ in 0..20 {
        assert!(net.ends[0].direct.awaits_peers());
        net.on(0, |direct, world| direct.probe(world));
        net.run_ms(100);
    }
    assert_eq!(net.outcomes(0), [], "its transport acknowledges");
    net.wire.dead = Some(1);
    for _ in 0..20 {
        net.on(0, |direct, world| direct.probe(world));
        net.run_ms(100);
    }
    assert_eq!(net.outcomes(0), [(Kind::Read, 3, Outcome::Unresponsive)]);
    assert!(!net.ends[0].direct.awaits_peers());
}
