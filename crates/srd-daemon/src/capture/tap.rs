//! The workers' side of a capture. A worker copies the selected packets into its own bounded queue;
//! if the queue is full, they are dropped and counted. The reader takes the oldest packet of all
//! queues.
//!
//! Invariant: no call of a worker waits or takes a lock. A tap whose reader was dropped is removed
//! when it selects its next packet, or when the next capture begins.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use srd_proto::Instant;

use super::headers::{self, HEADER_BYTES_MAX, Outer};
use super::{Filter, Layers, QUEUE_BYTES_MAX, QUEUE_PACKETS_MAX, SNAPLEN_MAX, TAPS_MAX};
use crate::plane::PeerNumber;

/// Direction of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Towards the applications of this machine.
    In,
    /// Towards the peer: packets that this machine sends.
    Out,
}

/// A captured packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) is_outer: bool,
    pub(super) direction: Direction,
    /// Time of the capture, in nanoseconds since 1970 (wall clock).
    pub(super) time_ns: u64,
    /// Length of the packet on the wire in bytes; larger than the length of `bytes` if the packet
    /// was cut.
    pub(super) length: u32,
    /// The stored part of the packet, from its IP header on.
    pub(super) bytes: Vec<u8>,
}

/// State that the taps of all workers and the reader of one capture share.
#[derive(Debug, Default)]
struct Shared {
    dropped: [AtomicU64; 2],
    /// Whether the reader was dropped.
    is_over: AtomicBool,
    /// The thread that reads, which a tap wakes after each packet; set at the first read.
    reader: OnceLock<Thread>,
}

/// One worker's end of one capture: the queue into which the worker copies packets.
#[derive(Clone, Debug)]
pub struct Tap {
    layers: Layers,
    peer: Option<PeerNumber>,
    snaplen: u32,
    sender: SyncSender<Packet>,
    /// Bytes of the packets that wait in this tap's queue.
    waiting_bytes: Arc<AtomicUsize>,
    shared: Arc<Shared>,
    /// Wall clock minus the workers' clock, measured when the capture began.
    offset_ns: u64,
}

/// One worker's queue of captured packets, at the reader's end.
#[derive(Debug)]
struct Queue {
    receiver: Receiver<Packet>,
    waiting_bytes: Arc<AtomicUsize>,
    /// The oldest packet of the queue, already received from the channel but not yet returned.
    head: Option<Packet>,
    has_ended: bool,
}

/// The reader's end of a capture: merges the queues of all workers. Only one thread reads.
#[derive(Debug)]
pub struct TapReader {
    queues: Vec<Queue>,
    shared: Arc<Shared>,
}

/// The captures that run at present.
#[derive(Debug, Default)]
pub struct Captures(Vec<Arc<Shared>>);

impl Captures {
    /// Begins a capture of one peer, or of all peers if `peer` is `None`. Returns one tap for each
    /// worker, and the reader.
    ///
    /// # Errors
    /// If the maximum number of captures runs already; the error is a text for a person.
    pub fn begin(
        &mut self,
        filter: &Filter,
        peer: Option<PeerNumber>,
        workers: usize,
    ) -> Result<(Vec<Tap>, TapReader), String> {
        self.0.retain(|shared| !shared.is_over.load(Ordering::Relaxed));
        if self.0.len() >= TAPS_MAX {
            return Err(format!("{TAPS_MAX} captures run already; end one of them first"));
        }
        let (taps, reader) = tap(filter, peer, workers);
        self.0.push(Arc::clone(&reader.shared));
        Ok((taps, reader))
    }
}

/// Creates one tap for each worker, and the reader of their queues.
pub(super) fn tap(
    filter: &Filter,
    peer: Option<PeerNumber>,
    workers: usize,
) -> (Vec<Tap>, TapReader) {
    let shared = Arc::new(Shared::default());
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
    let offset_ns = wall_ns.wrapping_sub(srd_net::Clock::new().now().as_nanos());
    let (layers, snaplen) = (filter.layers, filter.snaplen.clamp(1, SNAPLEN_MAX));
    let one = |_| {
        let (sender, receiver) = mpsc::sync_channel(QUEUE_PACKETS_MAX);
        let waiting_bytes = Arc::<AtomicUsize>::default();
        let queue = Queue {
            receiver,
            waiting_bytes: Arc::clone(&waiting_bytes),
            head: None,
            has_ended: false,
        };
        let shared = Arc::clone(&shared);
        (Tap { layers, peer, snaplen, sender, waiting_bytes, shared, offset_ns }, queue)
    };
    let (taps, queues) = (0..workers).map(one).unzip();
    (taps, TapReader { queues, shared })
}

/// A packet that a worker offers to captures.
struct Shown<'a> {
    now: Instant,
    direction: Direction,
    peer: Option<PeerNumber>,
    headers: &'a [u8],
    payload: &'a [u8],
}

impl Tap {
    fn wants(&self, is_outer: bool, peer: Option<PeerNumber>) -> bool {
        let by_layer = match self.layers {
            Layers::Both => true,
            Layers::Inner => !is_outer,
            Layers::Outer => is_outer,
        };
        by_layer && (self.peer.is_none() || self.peer == peer)
    }

    /// Copies a packet into the queue if the filter selects it, or counts it as dropped if the
    /// queue is full. Returns false if the reader was dropped, so that the tap can be removed.
    fn offer(&self, is_outer: bool, shown: &Shown<'_>) -> bool {
        if self.is_over() {
            return false;
        }
        if !self.wants(is_outer, shown.peer) {
            return true;
        }
        let length = shown.headers.len() + shown.payload.len();
        let kept = length.min(self.snaplen as usize);
        let waiting = self.waiting_bytes.fetch_add(kept, Ordering::Relaxed);
        let give_up = || {
            self.waiting_bytes.fetch_sub(kept, Ordering::Relaxed);
            self.shared.dropped[usize::from(is_outer)].fetch_add(1, Ordering::Relaxed);
        };
        if waiting + kept > QUEUE_BYTES_MAX {
            give_up();
            return true;
        }
        let mut bytes = Vec::with_capacity(kept);
        bytes.extend(shown.headers.iter().chain(shown.payload).take(kept));
        let packet = Packet {
            is_outer,
            direction: shown.direction,
            time_ns: shown.now.as_nanos().wrapping_add(self.offset_ns),
            length: u32::try_from(length).unwrap_or(u32::MAX),
            bytes,
        };
        match self.sender.try_send(packet) {
            Ok(()) => {
                if let Some(reader) = self.shared.reader.get() {
                    reader.unpark();
                }
                true
            }
            Err(TrySendError::Full(_)) => {
                give_up();
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Relaxed)
    }
}

/// All running captures of one worker.
#[derive(Debug, Default)]
pub struct Taps {
    taps: Vec<Tap>,
    /// Number of the peer at each outer address, to find the peer of an outer packet.
    names: BTreeMap<IpAddr, PeerNumber>,
}

impl Taps {
    /// Whether no capture runs, which is the usual case.
    pub fn is_empty(&self) -> bool {
        self.taps.is_empty()
    }

    /// Adds the tap of a new capture. [`Captures`] limits the number of captures.
    pub fn add(&mut self, tap: Tap) {
        // The tap of a capture that selects no packets is removed only at this point, after its
        // reader was dropped.
        self.taps.retain(|tap| !tap.is_over());
        if self.taps.len() < TAPS_MAX {
            self.taps.push(tap);
        }
    }

    /// Sets the peer of each outer address. An address that several peers share belongs to the last
    /// of them.
    pub fn set_names(&mut self, names: BTreeMap<IpAddr, PeerNumber>) {
        self.names = names;
    }

    /// Offers an inner packet to every capture. `packet` begins with the IP header; `peer` is
    /// `None` if the peer is not known.
    pub fn inner(
        &mut self,
        now: Instant,
        direction: Direction,
        peer: Option<PeerNumber>,
        packet: &[u8],
    ) {
        if !self.taps.is_empty() {
            let shown = Shown { now, direction, peer, headers: &[], payload: packet };
            self.taps.retain(|tap| tap.offer(false, &shown));
        }
    }

    /// Offers an outer packet to every capture: the UDP payload of one datagram (for a batch of GSO
    /// or GRO, call it once for each segment). The peer is looked up by the remote address.
    pub fn outer(&mut self, now: Instant, direction: Direction, outer: &Outer, payload: &[u8]) {
        let other = match direction {
            Direction::In => outer.source,
            Direction::Out => outer.destination,
        };
        let peer = self.names.get(&other.ip().to_canonical()).copied();
        if !self.taps.iter().any(|tap| tap.wants(true, peer)) {
            return;
        }
        let mut buffer = [0; HEADER_BYTES_MAX];
        let length = headers::write(outer, payload, &mut buffer);
        let shown = Shown { now, direction, peer, headers: &buffer[..length], payload };
        self.taps.retain(|tap| tap.offer(true, &shown));
    }
}

impl TapReader {
    /// Returns the oldest packet of all queues, and waits up to `wait_max` for a packet.
    ///
    /// # Errors
    /// If no packet arrived in time, or all workers have ended.
    pub(super) fn next(&mut self, wait_max: Duration) -> Result<Packet, RecvTimeoutError> {
        let _ = self.shared.reader.set(std::thread::current());
        let began = std::time::Instant::now();
        loop {
            self.queues.iter_mut().for_each(Queue::look);
            let waiting = self.queues.iter_mut().filter(|queue| queue.head.is_some());
            let oldest = waiting.min_by_key(|queue| queue.head.as_ref().map(|head| head.time_ns));
            if let Some(packet) = oldest.and_then(Queue::take) {
                return Ok(packet);
            }
            if self.queues.iter().all(|queue| queue.has_ended) {
                return Err(RecvTimeoutError::Disconnected);
            }
            let left = wait_max.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(RecvTimeoutError::Timeout);
            }
            std::thread::park_timeout(left);
        }
    }

    /// Numbers of packets that did not fit into a queue: first inner packets, then outer packets.
    pub fn dropped(&self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.shared.dropped[at].load(Ordering::Relaxed))
    }
}

impl Queue {
    /// Receives the next packet from the channel into `head`, unless `head` holds one already.
    fn look(&mut self) {
        if self.head.is_none() {
            match self.receiver.try_recv() {
                Ok(packet) => self.head = Some(packet),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.has_ended = true,
            }
        }
    }

    /// Removes and returns the packet in `head`; `None` if it holds no packet.
    fn take(&mut self) -> Option<Packet> {
        let packet = self.head.take()?;
        self.waiting_bytes.fetch_sub(packet.bytes.len(), Ordering::Relaxed);
        Some(packet)
    }
}

impl Drop for TapReader {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use srd_proto::Ecn;

    use super::*;

    const SOON: Duration = Duration::from_millis(10);
    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn between(source: &str, destination: &str) -> Outer {
        let address = |text: &str| text.parse().unwrap();
        Outer { source: address(source), destination: address(destination), ecn: Ecn::Ect }
    }

    fn outer() -> Outer {
        between("192.0.2.1:7480", "192.0.2.2:7471")
    }

    const B: Option<PeerNumber> = Some(PeerNumber(2));
    const C: Option<PeerNumber> = Some(PeerNumber(3));

    fn with(layers: Layers, peer: Option<PeerNumber>, snaplen: u32) -> (Taps, TapReader) {
        let filter = Filter { layers, snaplen, ..Filter::default() };
        let (ends, reader) = tap(&filter, peer, 1);
        let mut taps = Taps::default();
        ends.into_iter().for_each(|tap| taps.add(tap));
        taps.set_names([("192.0.2.2".parse().unwrap(), PeerNumber(2))].into());
        (taps, reader)
    }

    #[test]
    fn only_wanted_layers_and_peers_are_copied() {
        let (mut taps, mut reader) = with(Layers::Inner, B, SNAPLEN_MAX);
        taps.inner(NOW, Direction::Out, C, &[1]);
        taps.outer(NOW, Direction::Out, &outer(), &[2]);
        taps.inner(NOW, Direction::Out, B, &[3]);
        assert_eq!(reader.next(SOON).unwrap().bytes, [3]);
        assert!(reader.next(SOON).is_err());
        let (mut taps, mut reader) = with(Layers::Outer, B, SNAPLEN_MAX);
        taps.inner(NOW, Direction::In, B, &[1]);
        taps.outer(NOW, Direction::In, &between("192.0.2.3:7480", "192.0.2.1:7471"), &[2]);
        taps.outer(NOW, Direction::In, &between("192.0.2.2:7490", "192.0.2.1:7471"), &[3]);
        let packet = reader.next(SOON).unwrap();
        assert_eq!((packet.length, packet.bytes.last()), (29, Some(&3)));
        assert!(packet.is_outer && packet.direction == Direction::In);
        assert!(reader.next(SOON).is_err());
    }

    #[test]
    fn long_packets_are_cut_and_their_length_remembered() {
        let (mut taps, mut reader) = with(Layers::Both, None, 30);
        taps.inner(NOW, Direction::Out, B, &[7; 100]);
        taps.outer(NOW, Direction::Out, &outer(), &[8; 100]);
        let inner = reader.next(SOON).unwrap();
        assert_eq!((inner.length, inner.bytes.len()), (100, 30));
        let outer = reader.next(SOON).unwrap();
        assert_eq!((outer.length, outer.bytes.len()), (128, 30));
        assert_eq!(outer.bytes[28..], [8, 8]);
    }

    #[test]
    fn a_reader_that_does_not_read_costs_packets_and_no_time() {
        let (mut taps, reader) = with(Layers::Both, None, SNAPLEN_MAX);
        for _ in 0..QUEUE_PACKETS_MAX + 5 {
            taps.inner(NOW, Direction::Out, B, &[7]);
        }
        assert_eq!(reader.dropped(), [5, 0]);
        let (mut taps, mut reader) = with(Layers::Both, None, SNAPLEN_MAX);
        let large = vec![0; 65_535];
        for _ in 0..QUEUE_BYTES_MAX / large.len() + 3 {
            taps.inner(NOW, Direction::Out, B, &large);
        }
        assert_eq!(reader.dropped(), [3, 0]);
        reader.next(SOON).unwrap();
        taps.inner(NOW, Direction::Out, B, &large);
        assert_eq!(reader.dropped(), [3, 0]);
    }

    #[test]
    fn captures_are_bounded_and_end_with_their_reader() {
        let (mut captures, mut taps) = (Captures::default(), Taps::default());
        let mut readers = Vec::new();
        for _ in 0..TAPS_MAX {
            let (ends, reader) = captures.begin(&Filter::default(), None, 1).unwrap();
            ends.into_iter().for_each(|tap| taps.add(tap));
            readers.push(reader);
        }
        let refused = captures.begin(&Filter::default(), None, 1).map(|_| ());
        assert!(refused.unwrap_err().contains("4 captures"));
        readers.pop();
        let (ends, reader) = captures.begin(&Filter::default(), None, 1).unwrap();
        ends.into_iter().for_each(|tap| taps.add(tap));
        assert_eq!(taps.taps.len(), TAPS_MAX);
        drop((readers, reader));
        taps.inner(NOW, Direction::In, B, &[1]);
        assert!(taps.is_empty());
    }

    #[test]
    fn packets_of_several_workers_come_oldest_first_and_each_has_a_bound_of_its_own() {
        let (ends, mut reader) = tap(&Filter::default(), None, 2);
        let mut workers = ends.into_iter().map(|tap| {
            let mut taps = Taps::default();
            taps.add(tap);
            taps
        });
        let (mut first, mut second) = (workers.next().unwrap(), workers.next().unwrap());
        for _ in 0..QUEUE_PACKETS_MAX + 3 {
            first.inner(NOW, Direction::In, B, &[1]);
        }
        second.inner(Instant::ZERO, Direction::In, B, &[2]);
        assert_eq!(reader.dropped(), [3, 0]);
        assert_eq!(reader.next(SOON).unwrap().bytes, [2]);
        for _ in 0..QUEUE_PACKETS_MAX {
            assert_eq!(reader.next(SOON).unwrap().bytes, [1]);
        }
        assert_eq!(reader.next(SOON), Err(RecvTimeoutError::Timeout));
        drop((first, second));
        assert_eq!(reader.next(SOON), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn times_are_of_the_wall_clock() {
        let (mut taps, mut reader) = with(Layers::Both, None, SNAPLEN_MAX);
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let before = wall();
        taps.inner(srd_net::Clock::new().now(), Direction::In, B, &[1]);
        let (time, after) = (u128::from(reader.next(SOON).unwrap().time_ns), wall());
        // The wall clock and the workers' clock are read one after the other, so the offset is not
        // exact.
        let slack = 1_000_000_000;
        assert!((before - slack..after + slack).contains(&time), "{before} {time} {after}");
    }
}
