//! Connections: the rate at which they begin, their lifetime, and the entries that they take in a
//! card's table of tracked connections. The entries are counted for several sets of idle timeouts:
//! those of instance types, and the shortest permitted.
//!
//! The tables are those of the project's card (`srd_card::track`). All connections count as
//! tracked, because packets do not show which connections security groups track.
//!
//! Limit: [`ENTRIES_MAX`] entries in each table. When a table is full, connections are sampled from
//! then on: only connections whose hash ends with one more zero bit are kept, and each of them
//! stands for twice as many. Counts are exact until the first such step; afterwards their standard
//! error is below 0.5 %.
#![allow(clippy::cast_possible_truncation)] // rates, times and counts, far below 2^64

use std::hash::{BuildHasher, RandomState};

use hdrhistogram::Histogram;
use serde::Serialize;
use srd_card::track::key::Key;
use srd_card::track::state::{PacketKind, State};
use srd_card::track::table::{Lookup, Table};
use srd_card::track::timeouts::Timeouts;
use srd_proto::Secret;
use srd_proto::time::Instant;

use crate::analysis::rates::{Meter, Rates, record};

/// Largest number of entries of a table.
pub const ENTRIES_MAX: u32 = 1 << 17;
/// Time without packets, in nanoseconds, after which a connection counts as silent.
const SILENT_NS: u64 = 60_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Largest number of entries that one call of `expire` frees.
const WORK: u32 = 4096;
/// Longest lifetime that the histogram records, in microseconds: a day.
const LIFE_US_MAX: u64 = 86_400_000_000;

/// Record of a connection.
#[derive(Clone, Copy, Debug)]
struct Life {
    began_ns: u64,
    last_ns: u64,
    /// Whether the beginning of the connection was captured.
    is_whole: bool,
    is_over: bool,
}

/// Entries of the table of tracked connections, for one set of idle timeouts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Entries {
    /// Name of the set of idle timeouts.
    pub name: &'static str,
    /// Idle timeouts in seconds: established TCP, UDP streams, other UDP.
    pub timeouts_s: (u32, u32, u32),
    /// Largest number of entries at a time.
    pub peak: u64,
    /// Number of entries at the end of the captured time.
    pub last: u64,
    /// Expected number of entries in the long term, if connections continue to become silent
    /// without being closed. `None` if the idle timeout of TCP is not longer than the captured
    /// time, or if the captured time is below 90 s.
    pub settled: Option<u64>,
}

/// Figures about the connections that were captured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ConnectionsSeen {
    /// Number of connections that began in the captured time.
    pub began: u64,
    /// Number of TCP connections whose beginning and end were captured.
    pub ended: u64,
    /// Rates of new connections per second.
    pub rates: [Rates; 3],
    /// Median and 99th percentile of the lifetime, in milliseconds, of TCP connections whose
    /// beginning and end were captured. `None` if there was no such connection.
    pub life_ms: Option<(f64, f64)>,
    /// Number of established TCP connections whose beginning was captured and that had no packet in
    /// the last minute.
    pub silent: u64,
    /// Entries in the table of tracked connections, for each set of idle timeouts.
    pub entries: [Entries; 3],
    /// Number of connections for which each sampled connection stands at the end; 1 if there was no
    /// sampling.
    pub weight: u64,
}

/// Tables and counts of the connections of an interface.
pub(crate) struct Connections {
    known: Table<Life>,
    others: [Table; 2],
    peaks: [u64; 3],
    level: u32,
    hash: RandomState,
    lives: Histogram<u64>,
    meter: Meter,
    ended: u64,
    began_ns: u64,
    freed_ns: u64,
}

/// Returns three sets of idle timeouts, each with its name. The first set applies to most instance
/// types.
fn timeouts() -> [(&'static str, Timeouts); 3] {
    let shortest = Timeouts::new(60, 60, 30).expect("EC2's least times");
    [
        ("default", Timeouts::DEFAULT),
        ("default of Nitro v6", Timeouts::DEFAULT_V6),
        ("shortest", shortest),
    ]
}

/// Returns a random secret, derived from the secrets that the standard library draws for its hash
/// tables.
pub(crate) fn secret() -> Secret {
    let state = RandomState::new();
    let halves = [0, 1].map(|half: u64| state.hash_one(half).to_le_bytes());
    Secret::new(std::array::from_fn(|at| halves[at / 8][at % 8]))
}

impl Connections {
    pub(crate) fn new(now_ns: u64) -> Self {
        let [first, second, third] = timeouts();
        let secret = secret();
        let now = Instant::from_nanos(now_ns);
        let table = |timeouts| Table::new(u32::MAX, &[timeouts], secret, now);
        Self {
            known: Table::new(u32::MAX, &[first.1], secret, now),
            others: [table(second.1), table(third.1)],
            peaks: [0; 3],
            level: 0,
            hash: RandomState::new(),
            lives: Histogram::new(3).expect("three digits are valid"),
            meter: Meter::new(now_ns),
            ended: 0,
            began_ns: now_ns,
            freed_ns: now_ns,
        }
    }

    fn weight(&self) -> u64 {
        1 << self.level
    }

    fn is_followed(&self, key: &Key) -> bool {
        self.level == 0 || self.hash.hash_one(key).trailing_zeros() >= self.level
    }

    /// Adds a packet. `local` is set if this machine sent it.
    pub(crate) fn add(&mut self, now_ns: u64, key: &Key, local: bool, seen: PacketKind) {
        if now_ns >= self.freed_ns + SECOND_NS {
            self.free(now_ns);
        }
        if !self.is_followed(key) {
            return;
        }
        let now = Instant::from_nanos(now_ns);
        match self.known.packet(now, key, local, seen) {
            Lookup::New => {
                let opens = !matches!(seen, PacketKind::Tcp(flags) if flags & SYN == 0);
                let begins = !matches!(seen, PacketKind::Tcp(flags) if flags & (SYN | ACK) != SYN);
                let life =
                    Life { began_ns: now_ns, last_ns: now_ns, is_whole: begins, is_over: false };
                if self.known.insert(now, key, local, seen, life).is_ok() && opens {
                    self.meter.add(now_ns, self.weight());
                }
            }
            Lookup::Known { id, state, .. } => {
                let (weight, tcp) = (self.weight(), matches!(seen, PacketKind::Tcp(_)));
                if let Some((life, ..)) = self.known.value(id) {
                    life.last_ns = now_ns;
                    let over = tcp && matches!(state, State::Closing | State::Closed);
                    if over && !life.is_over && life.is_whole {
                        self.ended += weight;
                        let life_us = now_ns.saturating_sub(life.began_ns) / 1000;
                        record(&mut self.lives, life_us.clamp(1, LIFE_US_MAX), weight);
                    }
                    life.is_over |= over;
                }
            }
        }
        for table in &mut self.others {
            if table.packet(now, key, local, seen) == Lookup::New {
                // If the table is full, `insert` fails, and the call of `count` below removes
                // entries.
                let _ = table.insert(now, key, local, seen, ());
            }
        }
        self.count();
    }

    /// Updates the largest numbers of entries. If a table is full, removes half of the connections
    /// from all tables.
    fn count(&mut self) {
        let weight = self.weight();
        let tracked = [self.known.tracked(), self.others[0].tracked(), self.others[1].tracked()];
        for (peak, tracked) in self.peaks.iter_mut().zip(tracked) {
            *peak = (*peak).max(u64::from(tracked) * weight);
        }
        if tracked.iter().any(|tracked| *tracked >= ENTRIES_MAX) {
            self.level += 1;
            let (hash, level) = (self.hash.clone(), self.level);
            let keep = |key: &Key| hash.hash_one(key).trailing_zeros() >= level;
            self.known.retain(keep);
            self.others.iter_mut().for_each(|table| table.retain(keep));
        }
    }

    /// Frees the entries whose idle timeout has ended.
    fn free(&mut self, now_ns: u64) {
        self.freed_ns = now_ns;
        let now = Instant::from_nanos(now_ns);
        while !self.known.expire(now, WORK, |_, _| ()) {}
        for table in &mut self.others {
            while !table.expire(now, WORK, |_, _| ()) {}
        }
    }

    /// Returns the figures of the captured time, which ends at `now_ns`.
    pub(crate) fn seen(&mut self, now_ns: u64) -> ConnectionsSeen {
        self.free(now_ns);
        let seen_ns = now_ns.saturating_sub(self.began_ns);
        let weight = self.weight();
        let silent = self.known.flows(0, u32::MAX).filter(|(_, state, life, ..)| {
            let is_silent = now_ns.saturating_sub(life.last_ns) >= SILENT_NS;
            *state == State::Established && life.is_whole && is_silent
        });
        let silent = silent.count() as u64 * weight;
        let last = [self.known.tracked(), self.others[0].tracked(), self.others[1].tracked()];
        let entries = [0, 1, 2].map(|n: usize| {
            let (name, timeouts) = timeouts()[n];
            let timeouts_s = timeouts.seconds();
            let (peak, last) = (self.peaks[n], u64::from(last[n]) * weight);
            let settled =
                settled(silent, seen_ns, timeouts_s.0).map(|more| more + peak - silent.min(peak));
            Entries { name, timeouts_s, peak, last, settled }
        });
        let at = |share| self.lives.value_at_quantile(share) as f64 / 1e3;
        ConnectionsSeen {
            began: self.meter.total(),
            ended: self.ended,
            rates: self.meter.rates(seen_ns, 1.0),
            life_ms: (!self.lives.is_empty()).then(|| (at(0.5), at(0.99))),
            silent,
            entries,
            weight,
        }
    }
}

/// Returns the number of entries that silent connections take in the long term. `silent` is the
/// number of connections that became silent in the captured time.
fn settled(silent: u64, seen_ns: u64, timeout_s: u32) -> Option<u64> {
    let timeout_ns = u64::from(timeout_s) * SECOND_NS;
    let went_ns = seen_ns.checked_sub(SILENT_NS).filter(|ns| *ns >= SILENT_NS / 2)?;
    if timeout_ns <= seen_ns {
        return None;
    }
    Some((silent as f64 * timeout_ns as f64 / went_ns as f64) as u64)
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
