//! Credit limits of one receiver and several senders: the bytes that the receiver counts, and the
//! bytes that its senders have in flight.

use std::collections::VecDeque;

use super::*;
use crate::peer::{DATAGRAM_HEADER_BYTES, Tx};
use crate::wire::ack::AckHead;

/// Number of senders, which are the nodes 1, 2 and 3. Node 0 receives.
const SENDERS: u8 = 3;
const DELAY: Duration = Duration::from_micros(10);
const PAYLOAD_BYTES: usize = 1000;
const DATAGRAMS: u64 = 200;
/// Bytes of a datagram as windows and credit count them.
const BYTES: u64 = (PAYLOAD_BYTES + DATAGRAM_HEADER_BYTES) as u64;

/// A receiver, its senders, and a network with an equal delay for all packets.
struct Star {
    nodes: Vec<Endpoint>,
    now: Instant,
    wire: VecDeque<(Instant, u8, SocketAddr, Vec<u8>)>,
    /// Packets of the receiver that leave before this time are lost.
    mute_until: Instant,
    /// Number of times that a sender with a waiting datagram was held by its credit limit alone.
    held_by_credit: u32,
}

impl Star {
    /// Returns a star in which each sender has queued [`DATAGRAMS`] datagrams.
    fn new() -> Self {
        let node = |n: u8| {
            let config = Config {
                packet_bytes_max: 1500,
                link_rate_bps: 10_000_000_000,
                rtt_initial: DELAY.times(2),
                ..Config::default()
            };
            let mut endpoint = Endpoint::new(config, Epoch(1), [n; 32], Instant::ZERO).unwrap();
            endpoint.open_qp(Qpn(7), ReceiveBuffers::Unlimited);
            endpoint
        };
        let mut nodes: Vec<Endpoint> = (0..=SENDERS).map(node).collect();
        for sender in &mut nodes[1..] {
            let to = sender.add_peer(Instant::ZERO, PeerConfig::at(address(0))).unwrap();
            (0..DATAGRAMS).for_each(|_| send(sender, Instant::ZERO, to, PAYLOAD_BYTES));
        }
        let (now, wire) = (Instant::ZERO, VecDeque::new());
        Self { nodes, now, wire, mute_until: Instant::ZERO, held_by_credit: 0 }
    }

    /// The state of a sender towards the receiver.
    fn tx(&mut self, sender: u8) -> &Tx {
        let node = &mut self.nodes[usize::from(sender)];
        let id = node.peer_at(address(0)).unwrap();
        node.peers.peer(id).unwrap().tx.as_ref().unwrap()
    }

    /// Bytes that the receiver has counted from a sender.
    fn counted(&mut self, sender: u8) -> u64 {
        let id = self.nodes[0].peer_at(address(sender)).unwrap();
        self.nodes[0].peers.peer(id).unwrap().rx.as_ref().unwrap().share.received
    }

    /// Bytes of a sender that count against its credit limit.
    fn used(tx: &Tx) -> u64 {
        tx.settled_bytes + tx.sent.in_flight_bytes()
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_micros(1);
            while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, from, to, mut bytes) = self.wire.pop_front().unwrap();
                let source = address(from);
                let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: self.now };
                let to = (0..=SENDERS).find(|n| address(*n) == to).unwrap();
                let packet = PacketRef::Whole(&mut bytes);
                self.nodes[usize::from(to)].handle_packet(self.now, meta, packet);
            }
            (0..=SENDERS).for_each(|n| self.transmit(n));
        }
    }

    fn transmit(&mut self, n: u8) {
        let mut buf = TransmitBuf::new(1, 65_000);
        self.nodes[usize::from(n)].handle_timeout(self.now);
        loop {
            buf.clear();
            let before = if n > 0 { Self::used(self.tx(n)) } else { 0 };
            let Some(t) = self.nodes[usize::from(n)].poll_transmit(self.now, &mut buf) else {
                break;
            };
            if n > 0 {
                let (now, tx) = (self.now, self.tx(n));
                let (used, limit) = (Self::used(tx), tx.credit_limit);
                // R4: Sender below its limit
                let within = used <= before || !tx.credit_limited || used <= limit;
                assert!(within, "sender {n} has used {used} of {limit} at {now:?}");
            }
            let (head, payload) = buf.segments().next().unwrap();
            if n > 0 || self.now >= self.mute_until {
                let bytes = [head, payload].concat();
                self.wire.push_back((self.now + DELAY, n, t.destination, bytes));
            }
        }
        if n > 0 {
            let tx = self.tx(n);
            let in_flight = tx.sent.in_flight_bytes();
            let held = tx.queue.peek().is_some()
                && in_flight + BYTES <= tx.window.bytes()
                && tx.credit_limited
                && Self::used(tx) + BYTES > tx.credit_limit;
            self.held_by_credit += u32::from(held);
        }
    }
}

#[test]
fn a_receiver_counts_each_datagram_once_for_credit_however_often_it_arrives() {
    let mut star = Star::new();
    star.run(Duration::from_micros(100));
    star.mute_until = star.now + Duration::from_millis(3);
    star.run(Duration::from_millis(200));
    let stats = star.nodes[0].stats();
    assert_eq!(stats.recv_wrs, DATAGRAMS * u64::from(SENDERS));
    assert!(stats.rx_duplicates > 5, "{stats:?}");
    for sender in 1..=SENDERS {
        let settled = star.tx(sender).settled_bytes;
        // R2: Credit counts bytes once
        assert_eq!((settled, star.counted(sender)), (DATAGRAMS * BYTES, DATAGRAMS * BYTES));
    }
}

#[test]
fn a_sender_sends_nothing_beyond_its_credit_limit() {
    let mut star = Star::new();
    star.run(Duration::from_millis(20));
    assert_eq!(star.nodes[0].stats().recv_wrs, DATAGRAMS * u64::from(SENDERS));
    assert!(star.held_by_credit > 100, "{} times", star.held_by_credit);
}

/// Delivers an acknowledgement with this control number. `credit`: the credit limit, if there is
/// one.
fn acknowledge(to: &mut Endpoint, context: u32, number: u32, received: u32, credit: Option<u32>) {
    let mut bytes = Vec::new();
    let (flags, dst_context) = (FLAG_GREETING, context);
    Header { kind: Kind::Ack, flags, key_phase: 0, rtt_code: 0, dst_context, number }
        .encode(&mut bytes);
    Greeting { context: 5, epoch: 1, port: PORT, features: 0 }.encode(&mut bytes);
    let head = AckHead {
        cumulative: u32::from(received > 0),
        received_bytes: received,
        credit_limit_bytes: credit.unwrap_or(0),
        credit_limited: credit.is_some(),
        senders: 2,
        echo: None,
    };
    crate::wire::ack::encode(&mut bytes, &head, &[], &[], &[]);
    let now = Instant::from_nanos(1000);
    let meta = PacketMeta { source: address(1), local: 0, ecn: Ecn::NotEct, received_at: now };
    to.handle_packet(now, meta, PacketRef::Whole(&mut bytes));
}

#[test]
fn regression_a_late_acknowledgement_brings_no_credit_limit_back() {
    // The late acknowledgement reports fewer bytes, or as many.
    for received in [0, 36] {
        let mut a = Endpoint::new(Config::default(), Epoch(1), [7; 32], Instant::ZERO).unwrap();
        let (peer, context) = greets_as(&mut a);
        let limited = |a: &Endpoint| a.peer_stats(peer).unwrap().credit_limited;
        acknowledge(&mut a, context, 1, received, Some(10));
        assert!(limited(&a));
        acknowledge(&mut a, context, 3, 36, None);
        assert!(!limited(&a));
        acknowledge(&mut a, context, 2, received, Some(10));
        assert!(!limited(&a), "after a late acknowledgement of {received} bytes");
        acknowledge(&mut a, context, 4, 36, Some(10));
        assert!(limited(&a));
    }
}
