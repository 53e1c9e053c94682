//! The data plane's side of a capture: what is wanted is copied into a bounded queue, and what
//! does not fit is counted.
//!
//! Invariant: no call here waits. A tap whose reader has gone is taken out at the next packet
//! that it wants.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use srd_proto::{Ecn, Instant};

use super::headers::{self, HEADER_BYTES_MAX};
use super::{Filter, Layers, QUEUE_BYTES_MAX, QUEUE_PACKETS_MAX, SNAPLEN_MAX, TAPS_MAX};

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Towards the applications of this machine.
    In,
    /// Towards the peer.
    Out,
}

/// What an outer packet's socket knows of its headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// Its ECN bits.
    pub ecn: Ecn,
}

/// A captured packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) is_outer: bool,
    pub(super) direction: Direction,
    /// By the wall clock.
    pub(super) time_ns: u64,
    /// Bytes that it had.
    pub(super) length: u32,
    /// Those of them that are kept, from its IP header on.
    pub(super) bytes: Vec<u8>,
}

/// What both ends of a queue count.
#[derive(Debug, Default)]
struct Shared {
    waiting_bytes: AtomicUsize,
    dropped: [AtomicU64; 2],
}

/// The data plane's end of one capture.
#[derive(Debug)]
pub struct Tap {
    filter: Filter,
    sender: SyncSender<Packet>,
    shared: Arc<Shared>,
    /// Wall clock minus the data plane's clock, as it was when the capture began.
    offset_ns: u64,
}

/// The other end.
#[derive(Debug)]
pub struct TapReader {
    receiver: Receiver<Packet>,
    shared: Arc<Shared>,
}

/// Makes a capture: the end for the data plane, and the end to read from.
pub fn tap(filter: Filter) -> (Tap, TapReader) {
    let (sender, receiver) = mpsc::sync_channel(QUEUE_PACKETS_MAX);
    let shared = Arc::new(Shared::default());
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
    let offset_ns = wall_ns.wrapping_sub(srd_net::Clock::new().now().as_nanos());
    let filter = Filter { snaplen: filter.snaplen.clamp(1, SNAPLEN_MAX), ..filter };
    let reader = TapReader { receiver, shared: Arc::clone(&shared) };
    (Tap { filter, sender, shared, offset_ns }, reader)
}

/// A packet as the data plane shows it.
struct Shown<'a> {
    now: Instant,
    direction: Direction,
    peer: Option<&'a str>,
    headers: &'a [u8],
    payload: &'a [u8],
}

impl Tap {
    fn wants(&self, is_outer: bool, peer: Option<&str>) -> bool {
        let by_layer = match self.filter.layers {
            Layers::Both => true,
            Layers::Inner => !is_outer,
            Layers::Outer => is_outer,
        };
        by_layer && (self.filter.peer.is_none() || self.filter.peer.as_deref() == peer)
    }

    /// Copies a packet that is wanted; false if nobody reads any more.
    fn offer(&self, is_outer: bool, shown: &Shown<'_>) -> bool {
        if !self.wants(is_outer, shown.peer) {
            return true;
        }
        let length = shown.headers.len() + shown.payload.len();
        let kept = length.min(self.filter.snaplen as usize);
        let waiting = self.shared.waiting_bytes.fetch_add(kept, Ordering::Relaxed);
        let give_up = |shared: &Shared| {
            shared.waiting_bytes.fetch_sub(kept, Ordering::Relaxed);
            shared.dropped[usize::from(is_outer)].fetch_add(1, Ordering::Relaxed);
        };
        if waiting + kept > QUEUE_BYTES_MAX {
            give_up(&self.shared);
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
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                give_up(&self.shared);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// Every capture that runs, in the hands of the data plane.
#[derive(Debug, Default)]
pub struct Taps {
    taps: Vec<Tap>,
    /// Who is at an address, for outer packets.
    names: BTreeMap<IpAddr, String>,
}

impl Taps {
    /// Whether nobody wants packets, which is the usual case.
    pub fn is_empty(&self) -> bool {
        self.taps.is_empty()
    }

    /// Takes up a capture.
    ///
    /// # Errors
    /// As many run as may, in words.
    pub fn add(&mut self, tap: Tap) -> Result<(), String> {
        // An idle capture finds out late that its reader has gone.
        self.taps.retain(|tap| Arc::strong_count(&tap.shared) > 1);
        if self.taps.len() >= TAPS_MAX {
            return Err(format!("{TAPS_MAX} captures run already; end one of them first"));
        }
        self.taps.push(tap);
        Ok(())
    }

    /// Says who is at an address from now on; of several peers behind one, the last.
    pub fn set_names(&mut self, names: BTreeMap<IpAddr, String>) {
        self.names = names;
    }

    /// Shows an inner packet, from its IP header on, of the peer that goes by this name.
    pub fn inner(&mut self, now: Instant, direction: Direction, peer: &str, packet: &[u8]) {
        if !self.taps.is_empty() {
            let peer = Some(peer);
            let shown = Shown { now, direction, peer, headers: &[], payload: packet };
            self.taps.retain(|tap| tap.offer(false, &shown));
        }
    }

    /// Shows an outer packet: the UDP payload of one datagram (each segment of an offloaded run
    /// alone). It is the peer's that is known to be at the other end's address.
    pub fn outer(&mut self, now: Instant, direction: Direction, outer: &Outer, payload: &[u8]) {
        let other = match direction {
            Direction::In => outer.source,
            Direction::Out => outer.destination,
        };
        let peer = self.names.get(&other.ip().to_canonical()).map(String::as_str);
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
    /// The next packet.
    ///
    /// # Errors
    /// None came in time, or none will come any more.
    pub(super) fn next(&self, wait_max: Duration) -> Result<Packet, RecvTimeoutError> {
        let packet = self.receiver.recv_timeout(wait_max)?;
        self.shared.waiting_bytes.fetch_sub(packet.bytes.len(), Ordering::Relaxed);
        Ok(packet)
    }

    /// Packets that did not fit into the queue: inner ones, outer ones.
    pub fn dropped(&self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.shared.dropped[at].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
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

    fn with(filter: Filter) -> (Taps, TapReader) {
        let (tap, reader) = tap(filter);
        let mut taps = Taps::default();
        taps.add(tap).unwrap();
        taps.set_names([("192.0.2.2".parse().unwrap(), "b".into())].into());
        (taps, reader)
    }

    #[test]
    fn only_wanted_layers_and_peers_are_copied() {
        let filter = Filter { peer: Some("b".into()), ..Filter::default() };
        let (mut taps, reader) = with(Filter { layers: Layers::Inner, ..filter.clone() });
        taps.inner(NOW, Direction::Out, "c", &[1]);
        taps.outer(NOW, Direction::Out, &outer(), &[2]);
        taps.inner(NOW, Direction::Out, "b", &[3]);
        assert_eq!(reader.next(SOON).unwrap().bytes, [3]);
        assert!(reader.next(SOON).is_err());
        let (mut taps, reader) = with(Filter { layers: Layers::Outer, ..filter });
        taps.inner(NOW, Direction::In, "b", &[1]);
        taps.outer(NOW, Direction::In, &between("192.0.2.3:7480", "192.0.2.1:7471"), &[2]);
        taps.outer(NOW, Direction::In, &between("192.0.2.2:7490", "192.0.2.1:7471"), &[3]);
        let packet = reader.next(SOON).unwrap();
        assert_eq!((packet.length, packet.bytes.last()), (29, Some(&3)));
        assert!(packet.is_outer && packet.direction == Direction::In);
        assert!(reader.next(SOON).is_err());
    }

    #[test]
    fn long_packets_are_cut_and_their_length_remembered() {
        let (mut taps, reader) = with(Filter { snaplen: 30, ..Filter::default() });
        taps.inner(NOW, Direction::Out, "b", &[7; 100]);
        taps.outer(NOW, Direction::Out, &outer(), &[8; 100]);
        let inner = reader.next(SOON).unwrap();
        assert_eq!((inner.length, inner.bytes.len()), (100, 30));
        let outer = reader.next(SOON).unwrap();
        assert_eq!((outer.length, outer.bytes.len()), (128, 30));
        assert_eq!(outer.bytes[28..], [8, 8]);
    }

    #[test]
    fn a_reader_that_does_not_read_costs_packets_and_no_time() {
        let (mut taps, reader) = with(Filter::default());
        for _ in 0..QUEUE_PACKETS_MAX + 5 {
            taps.inner(NOW, Direction::Out, "b", &[7]);
        }
        assert_eq!(reader.dropped(), [5, 0]);
        let (mut taps, reader) = with(Filter::default());
        let large = vec![0; 65_535];
        for _ in 0..QUEUE_BYTES_MAX / large.len() + 3 {
            taps.inner(NOW, Direction::Out, "b", &large);
        }
        assert_eq!(reader.dropped(), [3, 0]);
        reader.next(SOON).unwrap();
        taps.inner(NOW, Direction::Out, "b", &large);
        assert_eq!(reader.dropped(), [3, 0]);
    }

    #[test]
    fn captures_are_bounded_and_end_with_their_reader() {
        let mut taps = Taps::default();
        let mut readers = Vec::new();
        for _ in 0..TAPS_MAX {
            let (tap, reader) = tap(Filter::default());
            taps.add(tap).unwrap();
            readers.push(reader);
        }
        let (more, _reader) = tap(Filter::default());
        assert!(taps.add(more).unwrap_err().contains("4 captures"));
        readers.pop();
        let (more, reader) = tap(Filter::default());
        taps.add(more).unwrap();
        drop((readers, reader));
        taps.inner(NOW, Direction::In, "b", &[1]);
        assert!(taps.is_empty());
    }

    #[test]
    fn times_are_of_the_wall_clock() {
        let (mut taps, reader) = with(Filter::default());
        taps.inner(srd_net::Clock::new().now(), Direction::In, "b", &[1]);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let time = u128::from(reader.next(SOON).unwrap().time_ns);
        assert!(wall.abs_diff(time) < 1_000_000_000, "{wall} {time}");
    }
}
