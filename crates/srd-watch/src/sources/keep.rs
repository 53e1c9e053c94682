//! Keeps the latest packets in memory, so that the packets of a burst can be saved after its end.
//!
//! New packets replace old packets. While a burst is under way, its packets are not replaced;
//! packets that do not fit into the memory are only counted. So the first part of a long burst is
//! saved.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use srd_pcapng::{Direction, Packet, Writer};
use srd_proto::time::{Duration, Instant};

use crate::analysis::burst::Burst;
use crate::sources::arrival::PacketDirection;
use crate::sources::read::Raw;

/// Length of the time before a burst whose packets are saved with the burst.
const BEFORE: Duration = Duration::from_millis(5);
/// Approximate bytes of memory that a packet takes in addition to its content.
const OVERHEAD_BYTES: usize = 64;
/// Largest number of characters of the interface's name that the name of a file contains. The
/// kernel permits 255 bytes in a file name.
const INTERFACE_CHARS_MAX: usize = 64;

#[derive(Clone, Debug)]
struct Entry {
    time: Instant,
    way: PacketDirection,
    length: u32,
    bytes: Box<[u8]>,
}

/// The packets of a burst, to be saved.
#[derive(Clone, Debug)]
pub struct BurstPackets {
    packets: Vec<Entry>,
    /// Number of packets in the time of the burst that did not fit into the memory.
    missing: u64,
}

/// The latest packets of an interface, within a limit of memory.
#[derive(Debug)]
pub(crate) struct Keeper {
    entries: VecDeque<Entry>,
    bytes: usize,
    bytes_max: usize,
    missing: u64,
}

impl Keeper {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, bytes_max, missing: 0 }
    }

    /// Adds a packet. `open` is the start of the possible burst under way, whose packets are not
    /// replaced; `None` if no burst is under way.
    pub(crate) fn push(&mut self, raw: &Raw<'_>, open: Option<Instant>) {
        let Some((bytes, length)) = raw.ip() else { return };
        let size = bytes.len() + OVERHEAD_BYTES;
        while self.bytes + size > self.bytes_max {
            let wanted = |first: &Entry| open.is_some_and(|open| first.time + BEFORE >= open);
            if self.entries.front().is_none_or(wanted) {
                self.missing += 1;
                return;
            }
            self.pop();
        }
        if open.is_none() {
            self.missing = 0;
        }
        self.bytes += size;
        let (time, way) = (raw.time, raw.way);
        self.entries.push_back(Entry { time, way, length, bytes: bytes.into() });
    }

    /// Returns the packets, of both directions, of a burst and of the 5 ms before it.
    pub(crate) fn of(&mut self, burst: &Burst) -> BurstPackets {
        let (start, end) = (burst.start_ns, burst.end_ns());
        let within = |entry: &&Entry| {
            (entry.time + BEFORE).as_nanos() >= start && entry.time.as_nanos() < end
        };
        let packets = self.entries.iter().filter(within).cloned().collect();
        BurstPackets { packets, missing: std::mem::take(&mut self.missing) }
    }

    /// Removes all packets.
    pub(crate) fn clear(&mut self) {
        (self.bytes, self.missing) = (0, 0);
        self.entries.clear();
    }

    fn pop(&mut self) {
        let entry = self.entries.pop_front();
        self.bytes -= entry.map_or(0, |entry| entry.bytes.len() + OVERHEAD_BYTES);
    }
}

/// Creates a file, after removing an existing file of this name. Other users may be able to write
/// to the directory and may guess the name. Creation fails if the name exists again, so this
/// program follows no link and writes to no file or FIFO of another user.
fn open(file: &Path) -> io::Result<File> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(file),
    }
}

impl BurstPackets {
    /// Writes the packets into a new pcapng file for the burst, in `directory`. Returns the file's
    /// path.
    ///
    /// # Errors
    /// An error of the operating system, if the file cannot be written.
    pub fn save(&self, burst: &Burst, directory: &Path) -> io::Result<PathBuf> {
        let (seconds, rest) = (burst.start_ns / 1_000_000_000, burst.start_ns % 1_000_000_000);
        // The name may come from a capture file, where it has any length.
        let interface: String = burst.interface.chars().take(INTERFACE_CHARS_MAX).collect();
        let interface = interface.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let name = format!("{interface}-{}-{seconds}.{rest:09}.pcapng", burst.way.name());
        let file = directory.join(name);
        let mut writer = Writer::begin("srd watch");
        let interface = writer.interface(&burst.interface, crate::sources::read::HEADERS_BYTES);
        for entry in &self.packets {
            writer.packet(&Packet {
                interface,
                direction: match entry.way {
                    PacketDirection::In => Direction::In,
                    PacketDirection::Out => Direction::Out,
                },
                time_ns: entry.time.as_nanos(),
                length: entry.length,
                bytes: &entry.bytes,
                comment: "",
            });
        }
        let received = self.packets.len() as u64 + self.missing;
        writer.statistics(interface, burst.end_ns(), received, self.missing);
        let mut made = open(&file)?;
        made.write_all(&writer.take())?;
        Ok(file)
    }

    /// Returns the approximate number of bytes of memory that the packets take.
    pub(crate) fn bytes(&self) -> usize {
        self.packets.iter().map(|entry| entry.bytes.len() + OVERHEAD_BYTES).sum()
    }

    /// Returns the number of packets that were kept, and the number of packets that did not fit.
    pub fn count(&self) -> (usize, u64) {
        (self.packets.len(), self.missing)
    }
}

#[cfg(test)]
#[path = "keep_tests.rs"]
mod tests;
