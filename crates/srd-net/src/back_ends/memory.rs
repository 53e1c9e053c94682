//! An in-memory replacement for [`crate::UdpIo`]: the same interface over a network that exists
//! only in this process. The network loses, reorders, duplicates and marks packets as configured,
//! by seed.
//!
//! For tests of every layer above the sockets. The clock is real, so the timing of a run is random;
//! the seed determines the treatment of the n-th packet.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use srd_proto::rng::Rng;
use srd_proto::time::{Duration, Instant};
use srd_proto::transmit::{Ecn, PacketMeta, Transmit};

use crate::back_ends::io::{IoStats, Notice, PacketIo, Segments, SendOutcome, Wait};
use crate::clock::Clock;
use crate::endpoints::wake::IoWaker;

/// Largest number of packets in an inbox. Further packets are lost, as in a full receive buffer.
const INBOX_PACKETS_MAX: usize = 16_384;

/// Treatment of packets by the network. Shares are in thousandths of all packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryOptions {
    /// Seed of the random choices for all packets.
    pub seed: u64,
    /// Share of packets that are lost.
    pub loss_permille: u32,
    /// Share of packets that are delivered twice.
    pub duplicate_permille: u32,
    /// Share of packets that are delayed by `hold`, so that later packets overtake them.
    pub reorder_permille: u32,
    /// Share of packets that are marked, if they are ECN-capable.
    pub mark_permille: u32,
    /// One-way delay of every packet.
    pub delay: Duration,
    /// Additional delay of the packets that `reorder_permille` selects.
    pub hold: Duration,
    /// Largest UDP payload in bytes. A larger packet is refused with a notice; zero: no limit.
    pub packet_bytes_max: usize,
}

/// A network in memory.
#[derive(Clone, Debug)]
pub struct MemoryNet {
    state: Arc<Mutex<Net>>,
}

#[derive(Debug)]
struct Net {
    options: MemoryOptions,
    rng: Rng,
    nodes: HashMap<SocketAddr, Arc<Node>>,
}

#[derive(Debug)]
struct Node {
    inbox: Mutex<Inbox>,
    waker: Arc<IoWaker>,
}

/// Packets, ordered by time of arrival, then by order of sending.
#[derive(Debug, Default)]
struct Inbox {
    packets: BTreeMap<(Instant, u64), Packet>,
    next: u64,
}

#[derive(Clone, Debug)]
struct Packet {
    source: SocketAddr,
    ecn: Ecn,
    bytes: Vec<u8>,
}

impl MemoryNet {
    /// Returns a network without nodes.
    pub fn new(options: MemoryOptions) -> Self {
        let net = Net { options, rng: Rng::new(options.seed), nodes: HashMap::new() };
        Self { state: Arc::new(Mutex::new(net)) }
    }

    /// Changes how the network treats packets from now on.
    pub fn set(&self, options: MemoryOptions) {
        lock(&self.state).options = options;
    }

    /// Adds a node that receives at `address` and sends from `paths` ports, the first of which is
    /// the port of `address`.
    pub fn node(&self, address: SocketAddr, paths: u16) -> MemoryIo {
        let waker = Arc::new(IoWaker::with_condition());
        let node = Arc::new(Node { inbox: Mutex::default(), waker });
        lock(&self.state).nodes.insert(address, node.clone());
        MemoryIo {
            net: self.clone(),
            node,
            address,
            paths,
            clock: Clock::new(),
            notices: Vec::new(),
            stats: IoStats::default(),
        }
    }
}

impl Net {
    /// Whether an event with a probability of `permille` thousandths happens to the next packet.
    fn happens(&mut self, permille: u32) -> bool {
        permille > 0 && self.rng.next_u64() % 1000 < u64::from(permille)
    }

    fn carry(&mut self, to: &Node, now: Instant, mut packet: Packet) {
        if self.happens(self.options.loss_permille) {
            return;
        }
        if packet.ecn == Ecn::Ect && self.happens(self.options.mark_permille) {
            packet.ecn = Ecn::Ce;
        }
        let held = self.happens(self.options.reorder_permille);
        let hold = if held { self.options.hold } else { Duration::ZERO };
        let at = now + self.options.delay + hold;
        let mut inbox = lock(&to.inbox);
        if self.happens(self.options.duplicate_permille) {
            inbox.add(at, packet.clone());
        }
        inbox.add(at, packet);
    }
}

impl Inbox {
    fn add(&mut self, at: Instant, packet: Packet) {
        if self.packets.len() < INBOX_PACKETS_MAX {
            self.next += 1;
            self.packets.insert((at, self.next), packet);
        }
    }

    fn take_due(&mut self, now: Instant) -> Option<(Instant, Packet)> {
        let entry = self.packets.first_entry()?;
        let at = entry.key().0;
        (at <= now).then(|| (at, entry.remove()))
    }

    fn next_at(&self) -> Instant {
        self.packets.first_key_value().map_or(Instant::FAR_FUTURE, |((at, _), _)| *at)
    }
}

/// One node of a [`MemoryNet`] as a [`PacketIo`].
#[derive(Debug)]
pub struct MemoryIo {
    net: MemoryNet,
    node: Arc<Node>,
    address: SocketAddr,
    paths: u16,
    clock: Clock,
    notices: Vec<Notice>,
    stats: IoStats,
}

impl MemoryIo {
    fn deliver_due(&mut self, each: &mut impl FnMut(Instant, PacketMeta, &mut [u8])) -> usize {
        let now = self.clock.now();
        let mut due = Vec::new();
        let mut inbox = lock(&self.node.inbox);
        while let Some(packet) = inbox.take_due(now) {
            due.push(packet);
        }
        drop(inbox);
        for (received_at, packet) in &mut due {
            let meta = PacketMeta {
                source: packet.source,
                local: 0,
                ecn: packet.ecn,
                received_at: *received_at,
            };
            self.stats.received_bytes += packet.bytes.len() as u64;
            each(now, meta, &mut packet.bytes);
        }
        self.stats.received_packets += due.len() as u64;
        self.stats.received_messages += due.len() as u64;
        due.len()
    }
}

impl PacketIo for MemoryIo {
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome> {
        let now = self.clock.now();
        let mut net = lock(&self.net.state);
        let limit = net.options.packet_bytes_max;
        for (transmit, segments) in batches {
            let mut source = self.address;
            source.set_port(self.address.port() + transmit.entropy.0 % self.paths);
            let Some(node) = net.nodes.get(&transmit.destination).cloned() else { continue };
            for (head, payload) in segments.parts() {
                let bytes = [head, payload].concat();
                if limit > 0 && bytes.len() > limit {
                    self.stats.send_too_large += 1;
                    self.notices.push(Notice::PacketTooLarge {
                        destination: transmit.destination,
                        packet_bytes: bytes.len(),
                        works_bytes: u16::try_from(limit).ok(),
                    });
                    continue;
                }
                self.stats.sent_packets += 1;
                self.stats.sent_bytes += bytes.len() as u64;
                net.carry(&node, now, Packet { source, ecn: transmit.ecn, bytes });
            }
            self.stats.sent_batches += 1;
            node.waker.wake();
        }
        self.stats.send_calls += 1;
        Ok(SendOutcome::All)
    }

    fn receive(
        &mut self,
        wait: Wait,
        mut each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        self.stats.receive_calls += 1;
        loop {
            let n = self.deliver_due(&mut each);
            let now = self.clock.now();
            if n > 0 || now >= wait.until {
                return Ok(n);
            }
            if !self.node.waker.prepare_sleep() {
                return Ok(self.deliver_due(&mut each));
            }
            let until = wait.until.min(lock(&self.node.inbox).next_at());
            let limit = until.since(now).as_nanos().min(1_000_000_000);
            self.stats.sleeps += 1;
            if self.node.waker.sleep(std::time::Duration::from_nanos(limit)) {
                self.node.waker.finish_sleep(false);
                return Ok(self.deliver_due(&mut each));
            }
            self.node.waker.finish_sleep(false);
        }
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn paths(&self) -> u16 {
        self.paths
    }

    fn batch_segments_max(&self) -> usize {
        64
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop()
    }

    fn stats(&self) -> IoStats {
        self.stats
    }

    fn waker(&mut self) -> io::Result<Arc<IoWaker>> {
        Ok(self.node.waker.clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_proto::ids::Entropy;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 100))
    }

    fn one(to: SocketAddr, byte: u8, bytes: usize) -> (Transmit, Vec<Vec<u8>>) {
        let transmit = Transmit {
            destination: to,
            entropy: Entropy(1),
            ecn: Ecn::Ect,
            segment_bytes: bytes,
            segments: 1,
            total_bytes: bytes,
            control: false,
        };
        (transmit, vec![vec![byte; bytes]])
    }

    fn received(options: MemoryOptions, count: u8) -> Vec<(u8, Ecn)> {
        let net = MemoryNet::new(options);
        let (mut a, mut b) = (net.node(address(1), 4), net.node(address(2), 4));
        for i in 0..count {
            a.send(&[one(address(2), i, 10)]).unwrap();
        }
        let mut got = Vec::new();
        let until = b.clock().now() + Duration::from_millis(20);
        loop {
            // This thread may run late: every packet that can arrive has arrived when the time is
            // over.
            let is_last = b.clock().now() >= until;
            let came = b.receive(Wait::until(until), |_, meta, bytes| {
                assert_eq!(meta.source, SocketAddr::from(([10, 0, 0, 1], 101)));
                got.push((bytes[0], meta.ecn));
            });
            if came.unwrap() == 0 && is_last {
                return got;
            }
        }
    }

    #[test]
    fn a_good_network_delivers_all_in_order() {
        let got = received(MemoryOptions::default(), 50);
        assert_eq!(got, (0..50).map(|i| (i, Ecn::Ect)).collect::<Vec<_>>());
    }

    #[test]
    fn a_seed_decides_what_is_lost_and_marked() {
        let options = MemoryOptions {
            seed: 7,
            loss_permille: 300,
            mark_permille: 300,
            ..MemoryOptions::default()
        };
        let got = received(options, 100);
        assert!(got.len() > 40 && got.len() < 95, "{}", got.len());
        assert!(got.iter().any(|(_, ecn)| *ecn == Ecn::Ce));
        assert_eq!(got, received(options, 100));
    }

    #[test]
    fn held_packets_are_overtaken_and_duplicates_come_twice() {
        let options = MemoryOptions {
            seed: 3,
            reorder_permille: 300,
            duplicate_permille: 300,
            hold: Duration::from_millis(2),
            ..MemoryOptions::default()
        };
        let got = received(options, 50);
        assert!(got.len() > 50);
        assert!(!got.is_sorted_by_key(|(byte, _)| *byte));
    }

    #[test]
    fn too_large_is_refused_with_the_size_that_works() {
        let net = MemoryNet::new(MemoryOptions { packet_bytes_max: 100, ..Default::default() });
        let mut a = net.node(address(1), 1);
        let _b = net.node(address(2), 1);
        a.send(&[one(address(2), 0, 101)]).unwrap();
        assert!(a.take_notice().unwrap().to_string().contains("100 bytes"));
    }
}
