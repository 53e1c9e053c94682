//! Packets from a capture file: pcap or pcapng, of Ethernet, of bare IP, or of Linux's "any".
//!
//! The file is read block by block and may be larger than memory. Each interface in it is watched
//! on its own, with the times of its packets as the clock.
//!
//! Bounds: [`INTERFACES_MAX`] interfaces; a block of [`BLOCK_BYTES_MAX`] bytes.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use pcap_parser::pcapng::{InterfaceDescriptionBlock, PcapNGOption};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, EnhancedPacketBlock, PcapBlockOwned, PcapError, create_reader};
use srd_card::Prefix;
use srd_proto::time::Instant;

use crate::arrival::Way;
use crate::model::Model;
use crate::read::Raw;
use crate::session::{Report, Session};
use crate::watch::{Settings, Watch};

/// Interfaces of a file, at most.
pub const INTERFACES_MAX: usize = 256;
/// Bytes of a block, at most.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;
/// Characters of a name that a file gives to an interface, at most.
pub const NAME_CHARS_MAX: usize = 64;
const BUFFER_BYTES: usize = 1 << 20;
/// The option of a packet that says its direction, and the directions in it.
const OPTION_FLAGS: u16 = 2;
const FLAGS_IN: u32 = 1;
const FLAGS_OUT: u32 = 2;
const NANO: u128 = 1_000_000_000;

/// What to do with a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// What arrivals are held against.
    pub model: Model,
    /// What is looked for.
    pub settings: Settings,
    /// Addresses of this side: packets from there go out. It counts where the file says nothing.
    pub local: Vec<Prefix>,
    /// Longer packets are super-packets of packets of this length.
    pub mtu_bytes: Option<u16>,
    /// Memory for packets that may be saved; zero keeps none.
    pub kept_bytes: usize,
}

/// Why a file could not be read, or not to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system's error.
    Io(io::Error),
    /// It is no capture file.
    Unknown,
    /// It is damaged after so many packets.
    Damaged(u64),
    /// It ends within a block, after so many packets.
    Cut(u64),
    /// It has more interfaces than [`INTERFACES_MAX`].
    Interfaces,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Unknown => f.write_str("neither a pcap nor a pcapng file"),
            Self::Damaged(packets) => write!(f, "damaged after {packets} packets"),
            Self::Cut(packets) => write!(f, "ends within a block, after {packets} packets"),
            Self::Interfaces => write!(f, "more than {INTERFACES_MAX} interfaces"),
        }
    }
}

impl std::error::Error for FileError {}

/// How packets of an interface are written down.
#[derive(Debug)]
struct Interface {
    name: String,
    link: i32,
    /// Units of time in a second.
    resolution: u128,
    /// Seconds to add.
    offset_s: i64,
}

/// What a file was found to have.
#[derive(Debug)]
pub struct Outcome {
    /// One for each interface that has packets.
    pub sessions: Vec<Session>,
    /// Why reading ended before the end of the file.
    pub error: Option<FileError>,
}

/// A packet of a file.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// The number of its interface, below [`INTERFACES_MAX`].
    pub interface: usize,
    /// The name of that.
    pub name: &'a str,
    /// The packet.
    pub raw: Raw<'a>,
    /// Whether the file says which way it goes.
    pub is_marked: bool,
    /// Bytes of the file that were read before.
    pub position: u64,
}

/// Watches the packets of a file. An error within it ends it there; what was found before is
/// reported.
///
/// # Errors
/// The file cannot be opened, or is no capture file.
pub fn run(
    file: &Path,
    options: &Options,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(Report),
) -> Result<Outcome, FileError> {
    let mut watched: Vec<Option<Session>> = Vec::new();
    let (local, mtu_bytes) = (&options.local[..], options.mtu_bytes);
    let error = packets(file, local, mtu_bytes, stop, &mut |read| {
        if watched.len() <= read.interface {
            watched.resize_with(read.interface + 1, || None);
        }
        let session = watched[read.interface].get_or_insert_with(|| {
            let Options { model, settings, kept_bytes, .. } = options;
            let watch = Watch::new(read.name, *settings, model, read.raw.time);
            Session::new(watch, None, *kept_bytes)
        });
        session.see(&read.raw);
        while let Some(found) = session.next_report(false) {
            report(found);
        }
    })?;
    let mut sessions = Vec::new();
    for mut session in watched.into_iter().flatten() {
        session.end();
        while let Some(found) = session.next_report(true) {
            report(found);
        }
        sessions.push(session);
    }
    Ok(Outcome { sessions, error })
}

/// Reads the packets of a file one by one; `local` and `mtu_bytes` as in [`Options`]. Returns why
/// reading ended before the end of the file.
///
/// # Errors
/// The file cannot be opened, or is no capture file.
pub fn packets(
    file: &Path,
    local: &[Prefix],
    mtu_bytes: Option<u16>,
    stop: &dyn Fn() -> bool,
    see: &mut dyn FnMut(&Read<'_>),
) -> Result<Option<FileError>, FileError> {
    let opened = File::open(file).map_err(FileError::Io)?;
    let mut reader = create_reader(BUFFER_BYTES, opened).map_err(|error| match error {
        PcapError::ReadError => FileError::Io(io::Error::other("it cannot be read")),
        _ => FileError::Unknown,
    })?;
    let name = plain(&file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
    let mut reading = Reading {
        name,
        local,
        mtu_bytes,
        see,
        interfaces: Vec::new(),
        base: 0,
        packets: 0,
        position: 0,
        nano: false,
    };
    while !stop() {
        match step(reader.as_mut(), &mut reading) {
            Ok(true) => {}
            Ok(false) => break,
            Err(found) => return Ok(Some(found)),
        }
    }
    Ok(None)
}

/// One block. False: the file is over.
fn step(reader: &mut dyn PcapReaderIterator, reading: &mut Reading<'_>) -> Result<bool, FileError> {
    let packets = reading.packets;
    let wanted = match reader.next() {
        Ok((used, block)) => {
            reading.block(&block)?;
            reading.position += used as u64;
            reader.consume(used);
            return Ok(true);
        }
        Err(PcapError::Eof) => return Ok(false),
        Err(PcapError::Incomplete(_)) => More::Bytes,
        Err(PcapError::BufferTooSmall) => More::Room,
        Err(PcapError::UnexpectedEof) => return Err(FileError::Cut(packets)),
        Err(_) => return Err(FileError::Damaged(packets)),
    };
    match wanted {
        More::Bytes if reader.reader_exhausted() => return Err(FileError::Cut(packets)),
        More::Bytes => {
            let before = reader.data().len();
            reader.refill().map_err(|_| FileError::Damaged(packets))?;
            if reader.data().len() == before && !reader.reader_exhausted() {
                grow(reader, packets)?;
            }
        }
        More::Room => grow(reader, packets)?,
    }
    Ok(true)
}

/// What a block lacks.
enum More {
    Bytes,
    Room,
}

/// Makes room for a larger block.
fn grow(reader: &mut dyn PcapReaderIterator, packets: u64) -> Result<(), FileError> {
    let size = reader.data().len().max(BUFFER_BYTES) * 2;
    if size > BLOCK_BYTES_MAX || !reader.grow(size) {
        return Err(FileError::Damaged(packets));
    }
    Ok(())
}

/// What is known while a file is read.
struct Reading<'a> {
    name: String,
    local: &'a [Prefix],
    mtu_bytes: Option<u16>,
    see: &'a mut dyn FnMut(&Read<'_>),
    interfaces: Vec<Interface>,
    /// Where those of this section begin.
    base: usize,
    packets: u64,
    position: u64,
    /// Whether a pcap file has nanoseconds.
    nano: bool,
}

/// A packet of a file.
struct Found<'a> {
    interface: usize,
    time: Instant,
    way: Option<Way>,
    length: u32,
    bytes: &'a [u8],
}

impl Reading<'_> {
    fn block(&mut self, block: &PcapBlockOwned<'_>) -> Result<(), FileError> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.nano = header.is_nanosecond_precision();
                self.interface(None, header.network.0, NANO, 0)
            }
            PcapBlockOwned::Legacy(packet) => {
                let unit = if self.nano { 1 } else { 1000 };
                let fraction = u64::from(packet.ts_usec).saturating_mul(unit);
                let ns = (u64::from(packet.ts_sec) * 1_000_000_000).saturating_add(fraction);
                let kept = (packet.caplen as usize).min(packet.data.len());
                self.packet(&Found {
                    interface: 0,
                    time: Instant::from_nanos(ns),
                    way: None,
                    length: packet.origlen,
                    bytes: &packet.data[..kept],
                });
                Ok(())
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.base = self.interfaces.len();
                Ok(())
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(found)) => {
                let name = found.if_name().and_then(Result::ok).map(str::to_owned);
                let resolution = resolution(found).ok_or(FileError::Damaged(self.packets))?;
                self.interface(name, found.linktype.0, resolution, found.if_tsoffset)
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(found)) => {
                self.enhanced(found);
                Ok(())
            }
            // Simple packets have no time, and other blocks no packet.
            PcapBlockOwned::NG(_) => Ok(()),
        }
    }

    fn interface(
        &mut self,
        name: Option<String>,
        link: i32,
        resolution: u128,
        offset_s: i64,
    ) -> Result<(), FileError> {
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(FileError::Interfaces);
        }
        let cut = |name: String| name.chars().take(NAME_CHARS_MAX).collect::<String>();
        let name = name.map(|name| format!("{}:{}", self.name, plain(&cut(name))));
        let name = name.unwrap_or_else(|| self.name.clone());
        self.interfaces.push(Interface { name, link, resolution, offset_s });
        Ok(())
    }

    fn enhanced(&mut self, found: &EnhancedPacketBlock<'_>) {
        let number = self.base.saturating_add(found.if_id as usize);
        let Some(interface) = self.interfaces.get(number) else { return };
        let units = u128::from(found.ts_high) << 32 | u128::from(found.ts_low);
        let ns = i128::try_from(units.saturating_mul(NANO) / interface.resolution);
        let ns =
            ns.unwrap_or(i128::MAX).saturating_add(i128::from(interface.offset_s) * 1_000_000_000);
        let ns = u64::try_from(ns.max(0)).unwrap_or(u64::MAX / 2);
        let big_endian = found.block_type != pcap_parser::pcapng::EPB_MAGIC;
        let kept = (found.caplen as usize).min(found.data.len());
        self.packet(&Found {
            interface: number,
            time: Instant::from_nanos(ns.min(u64::MAX / 2)),
            way: found.options.iter().find_map(|option| direction(option, big_endian)),
            length: found.origlen,
            bytes: &found.data[..kept],
        });
    }

    fn packet(&mut self, found: &Found<'_>) {
        self.packets += 1;
        let Some(interface) = self.interfaces.get(found.interface) else { return };
        let link = link(interface.link, found.bytes);
        let (at, ethertype, out) = link.unwrap_or((0, Some(0), false));
        let marked = found.way.or(out.then_some(Way::Out));
        let header_bytes = u32::try_from(at).unwrap_or(0);
        let mut raw = Raw {
            time: found.time,
            way: marked.unwrap_or(Way::In),
            ethertype,
            length: found.length.saturating_sub(header_bytes),
            segment_bytes: None,
            mtu_bytes: self.mtu_bytes,
            bytes: found.bytes.get(at..).unwrap_or_default(),
        };
        if marked.is_none() && !self.local.is_empty() {
            let source = raw.arrival().map(|arrival| arrival.flow.outer.source);
            let local = |prefix: &Prefix| source.is_some_and(|source| prefix.contains(source));
            if self.local.iter().any(local) {
                raw.way = Way::Out;
            }
        }
        (self.see)(&Read {
            interface: found.interface,
            name: &interface.name,
            raw,
            is_marked: marked.is_some(),
            position: self.position,
        });
    }
}

/// A name as a terminal may get it.
fn plain(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}

/// Units of time in a second: a power of ten, or of two.
fn resolution(interface: &InterfaceDescriptionBlock<'_>) -> Option<u128> {
    let exponent = u32::from(interface.if_tsresol & 0x7f);
    let base: u128 = if interface.if_tsresol & 0x80 == 0 { 10 } else { 2 };
    base.checked_pow(exponent).filter(|units| *units <= u128::from(u64::MAX))
}

fn direction(option: &PcapNGOption<'_>, big_endian: bool) -> Option<Way> {
    let flags: [u8; 4] = option.value.get(..4)?.try_into().ok()?;
    let flags = if big_endian { u32::from_be_bytes(flags) } else { u32::from_le_bytes(flags) };
    match (option.code.0, flags & 3) {
        (OPTION_FLAGS, FLAGS_IN) => Some(Way::In),
        (OPTION_FLAGS, FLAGS_OUT) => Some(Way::Out),
        _ => None,
    }
}

/// Where the packet is behind a link header of this type, what it is (`None`: Ethernet), and
/// whether the header says that it was sent.
fn link(kind: i32, bytes: &[u8]) -> Option<(usize, Option<u16>, bool)> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let by_version = |at: usize| match bytes.get(at)? >> 4 {
        4 => Some((at, Some(0x0800), false)),
        6 => Some((at, Some(0x86dd), false)),
        _ => None,
    };
    match kind {
        1 => Some((0, None, false)),
        12 | 14 | 101 | 228 | 229 => by_version(0),
        0 | 108 => by_version(4),
        113 => Some((16, Some(word(14)?), word(0)? == 4)),
        276 => Some((20, Some(word(0)?), *bytes.get(10)? == 4)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
