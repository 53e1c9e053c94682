//! Fuzz target of the messaging layer: two endpoints, a wire, and a script. The script uses the
//! endpoints, and sends changed copies of one endpoint's frames to the other. Nothing must panic
//! or loop for ever, and the attacked endpoint must still deliver a valid message.
#![allow(dead_code, clippy::cast_possible_truncation)] // each target uses one function

use std::net::SocketAddr;

use bytes::Bytes;
use srd_efa::layer::{
    Atomic, AtomicOp, Datatype, Iov, Message, Peek, Peer, Receive, Rma, RmaIov, Selector, Shared,
    Until, World,
};
use srd_efa::rdm::{Config, Rdm};
use srd_efa::{Access, Memory};
use srd_proto::{
    Config as CoreConfig, Delivery, Duration, Ecn, Endpoint, Epoch, Instant, PacketMeta, PacketRef,
    Qpn, TransmitBuf,
};

const RAM_BYTES: usize = 1 << 18;
/// Maximum number of frames that are kept to make changed copies of them.
const TEMPLATES_MAX: usize = 64;

struct Ram(Vec<u8>);

impl Memory for Ram {
    fn read(&mut self, _region: u64, offset: u64, bytes: usize) -> Bytes {
        Bytes::copy_from_slice(&self.0[offset as usize..offset as usize + bytes])
    }

    fn write(&mut self, _region: u64, offset: u64, bytes: &[u8]) {
        self.0[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }
}

struct Node {
    endpoint: Endpoint,
    rdm: Rdm,
    ram: Ram,
    peer: Peer,
}

struct Pair {
    nodes: [Node; 2],
    now: Instant,
    templates: Vec<(u64, Vec<u8>)>,
    /// One packet out of this number is lost; zero means that no packet is lost.
    loss: u32,
    packets: u32,
}

fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1 + node as u8], 7471))
}

fn node(node: usize, now: Instant) -> Node {
    let core = CoreConfig {
        packet_bytes_max: 600,
        keepalive: Duration::from_millis(50),
        ..CoreConfig::sockets()
    };
    let run = 7 + node as u64;
    let mut endpoint = Endpoint::new(core, Epoch(run), [node as u8; 32], now).expect("valid");
    let config = Config { operations_max: 16, receives_max: 16, report_remote: true, seed: 1 };
    let mut rdm = Rdm::new(config, &mut endpoint, address(node), run);
    let access = Access { local_write: true, remote_write: true, remote_read: true };
    let shared = Shared { region: 0, addr: 0, length: 4096, rkey: 5, access };
    rdm.share(shared).expect("the first key");
    Node { endpoint, rdm, ram: Ram(vec![0; RAM_BYTES]), peer: Peer(0) }
}

impl Pair {
    fn on<R>(&mut self, at: usize, call: impl FnOnce(&mut Rdm, &mut World<'_>, Peer) -> R) -> R {
        let Node { endpoint, rdm, ram, peer } = &mut self.nodes[at];
        call(rdm, &mut World { now: self.now, endpoint, memory: ram }, *peer)
    }

    /// Runs everything that is due, for a millisecond.
    fn run(&mut self) {
        let mut buf = TransmitBuf::new(16, 65_000);
        for _ in 0..20 {
            for at in 0..2 {
                for _ in 0..1000 {
                    let took = self.on(at, |rdm, world, _| rdm.pump(world));
                    let Node { endpoint, rdm, .. } = &mut self.nodes[at];
                    buf.clear();
                    let sent = endpoint.poll_transmit(self.now, &mut buf);
                    while let Some(event) = endpoint.poll_event() {
                        rdm.event(self.now, &event);
                    }
                    while rdm.poll().is_some() {}
                    if let Some(transmit) = &sent {
                        let source = SocketAddr::new(address(at).ip(), 7471 + transmit.entropy.0);
                        let packets: Vec<Vec<u8>> =
                            buf.segments().map(|(head, body)| [head, body].concat()).collect();
                        for packet in packets {
                            self.arrive(1 - at, source, packet);
                        }
                    } else if !took {
                        break;
                    }
                }
            }
            self.now += Duration::from_micros(50);
            for node in &mut self.nodes {
                node.endpoint.handle_timeout(self.now);
            }
        }
    }

    fn arrive(&mut self, at: usize, source: SocketAddr, mut packet: Vec<u8>) {
        self.packets += 1;
        if self.loss > 0 && self.packets.is_multiple_of(self.loss) {
            return;
        }
        let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: self.now };
        let Node { endpoint, rdm, ram, .. } = &mut self.nodes[at];
        let (now, templates) = (self.now, &mut self.templates);
        endpoint.handle_packet_with(now, meta, PacketRef::Whole(&mut packet), |d| {
            if at == 1 && templates.len() < TEMPLATES_MAX {
                templates.push((d.imm, d.payload.to_vec()));
            }
            rdm.admit(now, d, ram)
        });
    }

    /// Sends a changed copy of a frame of node 0 to node 1.
    fn throw(&mut self, which: u8, at: u8, with: u8, fewer: u8) {
        if self.templates.is_empty() {
            return;
        }
        let which = usize::from(which) % self.templates.len();
        let (mut imm, mut payload) = self.templates[which].clone();
        if at < 8 {
            imm ^= u64::from(with) << (8 * at);
        } else if !payload.is_empty() {
            let at = usize::from(at - 8) % payload.len();
            payload[at] ^= with;
        }
        payload.truncate(payload.len() - usize::from(fewer) % (payload.len() + 1));
        let Node { endpoint, rdm, ram, .. } = &mut self.nodes[1];
        let Some(peer) = endpoint.peer_at(address(0)) else { return };
        let (src_qpn, dst_qpn) = (Qpn(1), Qpn(1));
        let payload = &payload[..];
        let delivery = Delivery { peer, src_qpn, dst_qpn, imm, reliable: true, ce: false, payload };
        rdm.admit(self.now, &delivery, ram);
    }

    fn step(&mut self, what: u8, a: u8, b: u8, c: u8) {
        let length = [0, 1, 300, 5000, 60_000, 100_000][usize::from(a) % 6];
        let at = usize::from(b) & 1;
        let iov = [Iov { addr: 4096, length }];
        let until = [Until::Transmitted, Until::Delivered][usize::from(c) & 1];
        let tag = u64::from(c >> 1 & 3);
        let want = Selector { tag, ignore: u64::from(c >> 4 & 3), source: None };
        let context = tag;
        match what % 10 {
            0 | 1 => {
                let _ = self.on(at, |rdm, world, to| {
                    let (tag, data) = (Some(tag), Some(1));
                    let iov = &iov;
                    rdm.send(world, Message { to, tag, iov, data, context, until, signaled: true })
                });
            }
            2 | 3 => {
                let multi = (b & 2 > 0).then_some(10);
                let iov = &iov;
                let receive = Receive { tagged: true, want, iov, context, multi, signaled: true };
                let _ = self.on(at, |rdm, world, _| rdm.recv(world, receive));
            }
            4 => {
                let what = [Peek::Look, Peek::Claim, Peek::Discard][usize::from(a) % 3];
                let _ = self.on(at, |rdm, _, _| rdm.peek(true, want, what, context));
            }
            5 => {
                let _ = self.on(at, |rdm, _, _| rdm.discard_claimed(context, true));
                self.nodes[at].rdm.cancel(context);
            }
            6 => {
                let far = [RmaIov { addr: u64::from(c), length, rkey: 5 }];
                let (local, remote, read) = (&iov[..], &far[..], b & 2 > 0);
                let data = (!read && b & 4 > 0).then_some(u64::from(c) << 30);
                let _ = self.on(at, |rdm, world, to| {
                    rdm.rma(
                        world,
                        Rma { to, read, local, remote, data, context, until, signaled: true },
                    )
                });
            }
            7 => {
                let op = AtomicOp::ALL[usize::from(a) % 19];
                let datatype = Datatype::ALL[usize::from(c) % 14];
                let length = datatype.bytes() as u64;
                let piece = [Iov { addr: 8192, length }];
                let none: &[Iov] = &[];
                let operand = if op == AtomicOp::Read { none } else { &piece };
                let compare = if op.compares() { &piece } else { none };
                let remote = &[RmaIov { addr: 16, length, rkey: 5 }];
                let result = &piece;
                let _ = self.on(at, |rdm, world, to| {
                    let signaled = true;
                    let iov = (operand, compare, result);
                    let (operand, compare, result) = iov;
                    rdm.atomic(
                        world,
                        Atomic {
                            to,
                            op,
                            datatype,
                            operand,
                            compare,
                            result,
                            remote,
                            context,
                            until,
                            signaled,
                        },
                    )
                });
            }
            8 => self.loss = u32::from(a % 16),
            _ => self.run(),
        }
    }
}

/// Runs a script of steps of four bytes. A step whose first byte is 128 or more sends a changed
/// copy of a frame.
pub(crate) fn rdm(bytes: &[u8]) {
    let now = Instant::ZERO + Duration::from_secs(1);
    let mut pair = Pair {
        nodes: [node(0, now), node(1, now)],
        now,
        templates: Vec::new(),
        loss: 0,
        packets: 0,
    };
    for at in 0..2 {
        let to = address(1 - at);
        let peer = pair.on(at, |rdm, world, _| rdm.add_peer(world, to, 0));
        pair.nodes[at].peer = peer.expect("there is room");
    }
    for step in bytes.chunks_exact(4).take(200) {
        let [what, a, b, c] = [step[0], step[1], step[2], step[3]];
        if what >= 128 {
            pair.throw(what & 127, a, b, c);
        } else {
            pair.step(what, a, b, c);
        }
    }
    pair.loss = 0;
    pair.run();
    // Node 1 must still work after all forged frames: a message to itself finds its receive.
    let iov = &[Iov { addr: 0, length: 8 }];
    let want = Selector { tag: 99, ignore: 0, source: None };
    pair.on(1, |rdm, world, _| {
        let to = rdm.add_peer(world, address(1), 0).expect("there is room");
        let (tag, until, context) = (Some(99), Until::Injected, 77);
        let message = Message { to, tag, iov, data: None, context, until, signaled: true };
        let receive = Receive { tagged: true, want, iov, context, multi: None, signaled: true };
        let sent = rdm.send(world, message);
        if sent.is_ok() && rdm.recv(world, receive).is_ok() {
            let ended = core::iter::from_fn(|| rdm.poll()).filter(|done| done.context == 77);
            assert_eq!(ended.count(), 2);
        }
    });
}
