//! A wire in memory between the endpoints of a test. It loses, duplicates, delays and reorders
//! packets; all of this follows from a seed.
//!
//! The tests of the crates above `srd-proto` include this file by its path, each with its own
//! machines at the ends. End `n` has the address 192.0.2.`n`, and path `i` leaves from the source
//! port 7471 + `i`.
#![allow(dead_code)] // each test uses only a part

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use std::vec::Vec;

use srd_proto::rng::Rng;
use srd_proto::{Duration, Ecn, Instant, PacketMeta, Transmit, TransmitBuf};

const PORT: u16 = 7471;
/// Delay of each packet without jitter.
const DELAY_US: u64 = 20;
/// Number of different path delays.
const PATH_DELAYS: u64 = 64;

/// Returns the address of an end.
pub(crate) fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, u8::try_from(end).expect("few ends")], PORT))
}

/// A packet that has arrived at an end.
pub(crate) struct Arrival {
    pub(crate) to: usize,
    pub(crate) meta: PacketMeta,
    pub(crate) bytes: Vec<u8>,
}

/// The wire, with its faults and the packets on it.
pub(crate) struct Wire {
    pub(crate) loss_permille: u32,
    pub(crate) duplicate_permille: u32,
    pub(crate) jitter_us: u32,
    /// Unit of the differences between the delays of paths: a path has from 0 to 63 units more
    /// delay than the link alone.
    pub(crate) path_delay_us: u64,
    /// Size in bytes above which packets are lost.
    pub(crate) mtu_bytes: usize,
    /// End to which no packet arrives.
    pub(crate) dead: Option<usize>,
    /// Ends whose packets are lost in both directions.
    pub(crate) gone: Vec<usize>,
    pub(crate) rng: Rng,
    /// Packets by their times of arrival, with the end and the source address of each.
    pub(crate) packets: BTreeMap<(Instant, u64), (usize, SocketAddr, Vec<u8>)>,
    pub(crate) sequence: u64,
}

impl Wire {
    /// Creates a wire without faults.
    pub(crate) fn new() -> Self {
        Self {
            loss_permille: 0,
            duplicate_permille: 0,
            jitter_us: 0,
            path_delay_us: 0,
            mtu_bytes: usize::MAX,
            dead: None,
            gone: Vec::new(),
            rng: Rng::new(5),
            packets: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// Takes the packets of a batch that an end sends.
    pub(crate) fn put(&mut self, now: Instant, from: usize, t: &Transmit, buf: &TransmitBuf) {
        let to = usize::from(match t.destination.ip() {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(_) => u8::MAX,
        });
        let source = SocketAddr::new(address(from).ip(), PORT + t.entropy.0);
        let is_cut = self.dead == Some(to) || [from, to].iter().any(|end| self.gone.contains(end));
        let of_path = u64::from(t.entropy.0) * 37 % PATH_DELAYS * self.path_delay_us;
        for (head, payload) in buf.segments() {
            let bytes = [head, payload].concat();
            if self.chance(self.loss_permille) || is_cut || bytes.len() > self.mtu_bytes {
                continue;
            }
            let is_twice = self.duplicate_permille > 0 && self.chance(self.duplicate_permille);
            for _ in 0..1 + u8::from(is_twice) {
                let jitter = u64::from(self.rng.below(self.jitter_us + 1));
                let at = now + Duration::from_micros(DELAY_US + of_path + jitter);
                self.sequence += 1;
                self.packets.insert((at, self.sequence), (to, source, bytes.clone()));
            }
        }
    }

    fn chance(&mut self, permille: u32) -> bool {
        self.rng.below(1000) < permille
    }

    /// Returns the time at which the next packet arrives; `None` if no packet is on the wire.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.packets.keys().next().map(|(at, _)| *at)
    }

    /// Removes and returns the next packet that has arrived by now.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Arrival> {
        let entry = self.packets.first_entry().filter(|entry| entry.key().0 <= now)?;
        let (to, source, bytes) = entry.remove();
        let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: now };
        Some(Arrival { to, meta, bytes })
    }

    /// Returns the source address of each packet on the wire.
    pub(crate) fn sources(&self) -> impl Iterator<Item = SocketAddr> {
        self.packets.values().map(|(_, source, _)| *source)
    }

    /// Loses all packets on the wire.
    pub(crate) fn lose_all(&mut self) {
        self.packets.clear();
    }

    /// Loses all packets on the wire to an end.
    pub(crate) fn lose_to(&mut self, end: usize) {
        self.packets.retain(|_, (to, _, _)| *to != end);
    }
}
