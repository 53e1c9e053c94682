//! Tests that need the internal state of an endpoint.

use std::vec::Vec;

use bytes::Bytes;

use super::*;
use crate::event::Class;
use crate::time::Duration;
use crate::transmit::{Ecn, PacketMeta, PacketRef};
use crate::wire::greeting::Greeting;
use crate::wire::probe::Probe;
use crate::wire::{FLAG_ACK_NOW, FLAG_GREETING, HEADER_BYTES, Header, Kind};

mod credit;
mod limits;
mod link_local;
mod strangers;

const PORT: u16 = 7471;

fn address(n: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), PORT)
}

fn node(n: u8) -> Endpoint {
    let config = Config { protection: Protection::JobKey([9; 32]), ..Config::sockets() };
    let mut endpoint = Endpoint::new(config, Epoch(1), [n; 32], Instant::ZERO).unwrap();
    endpoint.open_qp(Qpn(7), ReceiveBuffers::Unlimited);
    endpoint
}

fn send(from: &mut Endpoint, now: Instant, to: PeerId, bytes: usize) {
    let datagram = Datagram {
        src_qpn: Qpn(1),
        dst_qpn: Qpn(7),
        imm: 0,
        payload: Bytes::from(alloc::vec![0; bytes]),
        class: Class::Bulk,
        user: 0,
    };
    from.send(now, to, datagram).unwrap();
}

/// Exchanges all packets between the nodes for `span`.
fn exchange(nodes: &mut [Endpoint], from: Instant, span: Duration) -> Instant {
    let (mut now, step) = (from, Duration::from_micros(20));
    let mut buf = TransmitBuf::new(16, 65_000);
    while now < from + span {
        now += step;
        for n in 0..nodes.len() {
            nodes[n].handle_timeout(now);
            loop {
                buf.clear();
                let Some(t) = nodes[n].poll_transmit(now, &mut buf) else { break };
                let to = (0..3_u8).find(|n| address(*n) == t.destination).unwrap();
                let source = address(u8::try_from(n).unwrap());
                for (head, payload) in buf.segments() {
                    let mut bytes = head.to_vec();
                    bytes.extend_from_slice(payload);
                    let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: now };
                    let packet = PacketRef::Whole(&mut bytes);
                    nodes[usize::from(to)].handle_packet(now, meta, packet);
                }
            }
        }
    }
    now
}

/// Delivers a plain probe with this greeting, which names no context of the receiver. Returns the
/// size of the packet in bytes.
fn introduce_to(
    node: &mut Endpoint,
    now: Instant,
    source: SocketAddr,
    greeting: &Greeting,
) -> usize {
    let mut bytes = Vec::new();
    let flags = FLAG_GREETING | FLAG_ACK_NOW;
    Header { kind: Kind::Probe, flags, key_phase: 0, rtt_code: 0, dst_context: 0, number: 0 }
        .encode(&mut bytes);
    greeting.encode(&mut bytes);
    Probe { sent_at: 0, queued_bytes: 0, floor: 0 }.encode(&mut bytes, 0);
    let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: now };
    node.handle_packet(now, meta, PacketRef::Whole(&mut bytes));
    bytes.len()
}

/// Destination of each transmit, and the contexts that its packets name.
fn transmits(endpoint: &mut Endpoint, now: Instant) -> Vec<(SocketAddr, Vec<u32>)> {
    let mut buf = TransmitBuf::new(16, 65_000);
    let mut all = Vec::new();
    loop {
        buf.clear();
        let Some(t) = endpoint.poll_transmit(now, &mut buf) else { return all };
        let context = |head: &[u8]| Header::decode(head).unwrap().0.dst_context;
        let contexts: Vec<u32> = buf.segments().map(|(head, _)| context(head)).collect();
        assert_eq!(contexts.len(), t.segments);
        all.push((t.destination, contexts));
    }
}

#[test]
fn regression_a_batch_that_a_used_up_key_cuts_short_goes_to_its_own_peer() {
    for unreliable in [false, true] {
        let mut nodes = [node(0), node(1), node(2)];
        let now = Instant::ZERO;
        let [b, c] = [1, 2].map(|n| nodes[0].add_peer(now, PeerConfig::at(address(n))).unwrap());
        send(&mut nodes[0], now, b, 1000);
        send(&mut nodes[0], now, c, 1000);
        let now = exchange(&mut nodes, now, Duration::from_millis(20));
        let a = &mut nodes[0];
        let contexts = [b, c].map(|id| a.peers.peer(id).unwrap().remote_context);
        let session = a.peers.peer(b).unwrap().protected.session.as_mut().unwrap();
        session.leave_seals_for(2, 1100);
        for id in [b, c] {
            for _ in 0..6 {
                if unreliable {
                    let (class, payload) = (Class::Bulk, Bytes::from(alloc::vec![0; 1000]));
                    let (src_qpn, dst_qpn) = (Qpn(1), Qpn(7));
                    let datagram = Datagram { src_qpn, dst_qpn, imm: 0, payload, class, user: 0 };
                    a.send_unreliable(now, id, Entropy(3), datagram).unwrap();
                } else {
                    send(a, now, id, 1000);
                }
            }
        }
        let batches = transmits(a, now);
        let to_b = batches.iter().find(|(to, _)| *to == address(1)).unwrap();
        assert_eq!(to_b.1, [contexts[0]; 2], "what was sealed leaves");
        let of_c = batches.iter().filter(|(to, _)| *to == address(2));
        assert!(of_c.flat_map(|(_, named)| named).all(|named| *named == contexts[1]));
    }
}

/// Adds a peer to a plain endpoint and sends to it. Returns the peer, and our number for its
/// context.
fn greets_as(endpoint: &mut Endpoint) -> (PeerId, u32) {
    let now = Instant::ZERO;
    let peer = endpoint.add_peer(now, PeerConfig::at(address(1))).unwrap();
    send(endpoint, now, peer, 0);
    let mut buf = TransmitBuf::new(1, 1500);
    endpoint.poll_transmit(now, &mut buf).unwrap();
    let (head, _) = buf.segments().next().unwrap();
    let (greeting, _) = Greeting::decode(&head[HEADER_BYTES..]).unwrap();
    (peer, greeting.context)
}

#[test]
fn neither_the_runs_of_a_node_nor_the_contexts_of_a_slot_have_a_number_in_common() {
    let mut numbers = BTreeSet::new();
    for epoch in 0..1000 {
        // The seed of a plain endpoint is not secret, and may be the same in each run.
        let mut endpoint =
            Endpoint::new(Config::default(), Epoch(epoch), [7; 32], Instant::ZERO).unwrap();
        for _ in 0..if epoch == 0 { 1000 } else { 1 } {
            let (peer, number) = greets_as(&mut endpoint);
            assert!(numbers.insert(number), "{number} is given out twice");
            endpoint.remove_peer(Instant::ZERO, peer);
        }
    }
}
