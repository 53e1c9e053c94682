//! Packets of a capture: pcap or pcapng from a file, a pipe or standard input, which may be
//! compressed.
//!
//! A capture is read once, packet by packet, and may be larger than memory. Each interface of a
//! capture is watched separately, with the times of its packets as the clock.
//!
//! Packets of unsupported kinds are counted by kind ([`SkipCounts`]). The limits of
//! [`srd_pcapng::read`] apply.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read as Source};
use std::path::Path;
use std::rc::Rc;

use srd_card::Prefix;
use srd_pcapng::Direction;
use srd_pcapng::read::{Captured, Interface, ReadError, Reader, Record};
use srd_proto::time::Instant;

pub use srd_pcapng::read::{BLOCK_BYTES_MAX, INTERFACES_MAX};

use crate::analysis::model::Model;
use crate::analysis::watch::{Settings, Watch};
use crate::output::units::grouped;
use crate::session::{Report, Session};
use crate::sources::arrival::PacketDirection;
use crate::sources::input::{Input, STDIN};
use crate::sources::link::{self, Next};
use crate::sources::other::{SkipCounts, SkipReason};
use crate::sources::read::{Raw, said_bytes};

/// Largest number of characters of an interface's name that are used; longer names in a file are
/// cut.
pub const NAME_CHARS_MAX: usize = 64;

/// Options for reading a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Model (limits) with which the arrivals are compared.
    pub model: Model,
    /// Settings of the search for bursts.
    pub settings: Settings,
    /// Addresses of the captured machine: a packet from one of them is outgoing. They are used only
    /// if the file does not mark directions.
    pub local: Vec<Prefix>,
    /// Length in bytes above which a packet counts as a super-packet, that is, as several packets
    /// of at most this length; `None` counts each packet as one.
    pub mtu_bytes: Option<u16>,
    /// Bytes of memory for packets that are kept to be saved; zero keeps no packets.
    pub kept_bytes: usize,
}

/// Reason why a file could not be read, or could not be read to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// An error of the operating system.
    Io(io::Error),
    /// The file is not a capture file.
    Unknown(ReadError),
    /// Reading ended with an error within the file, after a number of packets.
    Ended {
        /// Number of packets that were read before the error.
        packets: u64,
        /// The error at which reading ended.
        why: ReadError,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Unknown(why) => write!(f, "{why}"),
            Self::Ended { packets, why } => {
                write!(f, "{why}, after {} packets", grouped(*packets))
            }
        }
    }
}

impl std::error::Error for FileError {}

/// Result of reading a file.
#[derive(Debug)]
pub struct Outcome {
    /// Sessions (analyses), one for each interface that has packets.
    pub sessions: Vec<Session>,
    /// Numbers of packets, and the reason why reading ended.
    pub end: End,
}

/// Result of the reading itself: numbers of packets, and the reason why reading ended.
#[derive(Debug, Default)]
pub struct End {
    /// Number of packets, including unsupported packets.
    pub packets: u64,
    /// Packets that have an unsupported link type or no interface. Packets whose contents are
    /// unsupported are not included here; the caller counts them.
    pub others: SkipCounts,
    /// Error that ended reading before the end of the file; `None` if there was no error.
    pub error: Option<FileError>,
    /// Whether reading ended because the caller's stop function returned true.
    pub is_stopped: bool,
}

impl End {
    /// Returns the reason why a file yields no result. `others` counts all packets that were
    /// skipped.
    pub fn nothing(&self, others: &SkipCounts) -> String {
        if self.packets == 0 && self.is_stopped {
            "stopped before a packet was read".to_owned()
        } else if self.packets == 0 {
            "it has no packets".to_owned()
        } else if others.unread() == 0 {
            format!("it has no IP packets: {others}")
        } else {
            format!("nothing in it is read: {others}")
        }
    }
}

/// Returns the display name of a file.
pub fn name_of(file: &Path) -> String {
    if file.as_os_str() == STDIN { "standard input".to_owned() } else { file.display().to_string() }
}

/// A packet of a file.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// The number of the packet's interface, below [`INTERFACES_MAX`].
    pub interface: usize,
    /// The name of the file and, if the file names the packet's interface, the name of the
    /// interface.
    pub name: &'a str,
    /// The name that the file gives to the packet's interface; `None` if the interface has no name.
    pub device: Option<&'a str>,
    /// The packet. If the file does not mark its direction, it counts as incoming.
    pub raw: Raw<'a>,
    /// Whether the file marks the direction of the packet.
    pub is_marked: bool,
    /// Bytes of the file that were read before this packet.
    pub position: u64,
}

impl<'a> Read<'a> {
    /// Returns the packet with its direction. If the file does not mark the direction, a packet
    /// from one of the addresses `local` is outgoing, and any other packet is incoming.
    pub fn directed(&self, local: &[Prefix]) -> Raw<'a> {
        let mut raw = self.raw;
        if !self.is_marked && !local.is_empty() {
            let source = raw.arrival().map(|arrival| arrival.flow.outer.source);
            let is_local = |prefix: &Prefix| source.is_some_and(|source| prefix.contains(source));
            if local.iter().any(is_local) {
                raw.way = PacketDirection::Out;
            }
        }
        raw
    }
}

/// Watches the packets of a file for bursts. An error within the file ends reading; bursts before
/// the error are reported.
///
/// # Errors
/// A [`FileError`], if the file cannot be opened or is no capture file.
pub fn run(
    file: &Path,
    options: &Options,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(Report),
) -> Result<Outcome, FileError> {
    let mut watched: Vec<Option<Session>> = Vec::new();
    let end = packets(file, options.mtu_bytes, stop, &mut |read| {
        if watched.len() <= read.interface {
            watched.resize_with(read.interface + 1, || None);
        }
        let session = watched[read.interface].get_or_insert_with(|| {
            let Options { model, settings, kept_bytes, .. } = options;
            let watch = Watch::new(read.name, *settings, model, read.raw.time);
            Session::new(watch, None, *kept_bytes)
        });
        session.see(&read.directed(&options.local));
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
    Ok(Outcome { sessions, end })
}

/// Reads the packets of a file one by one and passes them to `see`; the name `-` is standard input.
/// `mtu_bytes` has the meaning of the field in [`Options`].
///
/// # Errors
/// A [`FileError`], if the file cannot be opened or is no capture file.
pub fn packets(
    file: &Path,
    mtu_bytes: Option<u16>,
    stop: &dyn Fn() -> bool,
    see: &mut dyn FnMut(&Read<'_>),
) -> Result<End, FileError> {
    let opened = match Input::open(file, stop) {
        Ok(opened) => opened,
        Err(_) if stop() => return Ok(End { is_stopped: true, ..End::default() }),
        Err(error) => return Err(FileError::Io(error)),
    };
    let taken = opened.taken();
    let name = plain(&name_of(Path::new(file.file_name().unwrap_or(file.as_os_str()))));
    from_source(opened, Begun { name, mtu_bytes, taken }, stop, see)
}

/// Reads the packets of a capture in memory, for tests and fuzzers.
///
/// # Errors
/// A [`FileError`], if the bytes are no capture file.
pub fn packets_in(
    bytes: &mut dyn Source,
    mtu_bytes: Option<u16>,
    see: &mut dyn FnMut(&Read<'_>),
) -> Result<End, FileError> {
    let begun = Begun { name: "memory".to_owned(), mtu_bytes, taken: Rc::default() };
    from_source(bytes, begun, &|| false, see)
}

/// Properties of a source that are given before it is read.
struct Begun {
    name: String,
    mtu_bytes: Option<u16>,
    /// Bytes of the file that were read so far, before decompression.
    taken: Rc<Cell<u64>>,
}

fn from_source(
    source: impl Source,
    begun: Begun,
    stop: &dyn Fn() -> bool,
    see: &mut dyn FnMut(&Read<'_>),
) -> Result<End, FileError> {
    let mut reader = match Reader::new(source) {
        Ok(reader) => reader,
        Err(_) if stop() => return Ok(End { is_stopped: true, ..End::default() }),
        Err(ReadError::Io(error)) => return Err(FileError::Io(error)),
        Err(error) => return Err(FileError::Unknown(error)),
    };
    let mut reading = Reading { begun, see, interfaces: Vec::new(), end: End::default() };
    // Packets still count if their bytes were read before the stop, because only the source checks
    // for a stop.
    loop {
        match reader.next_record() {
            Ok(Some(Record::Interface(interface))) => reading.interface(interface),
            Ok(Some(Record::Packet(captured))) => reading.packet(&captured),
            Ok(None) => return Ok(reading.end),
            // An error after a stop is not an error of the file: the stop caused it.
            Err(_) if stop() => break,
            Err(why) => {
                let packets = reading.end.packets;
                reading.end.error = Some(FileError::Ended { packets, why });
                return Ok(reading.end);
            }
        }
    }
    reading.end.is_stopped = true;
    Ok(reading.end)
}

/// State of reading a file.
struct Reading<'a> {
    begun: Begun,
    see: &'a mut dyn FnMut(&Read<'_>),
    /// The interfaces that the file describes, each with its display name.
    interfaces: Vec<(Interface, String)>,
    end: End,
}

impl Reading<'_> {
    fn interface(&mut self, mut interface: Interface) {
        let cut = |name: &String| plain(&name.chars().take(NAME_CHARS_MAX).collect::<String>());
        interface.name = interface.name.as_ref().map(cut);
        let name = match &interface.name {
            Some(name) => format!("{}:{name}", self.begun.name),
            None => self.begun.name.clone(),
        };
        self.interfaces.push((interface, name));
    }

    fn packet(&mut self, captured: &Captured<'_>) {
        self.end.packets += 1;
        if let Err(other) = self.show(captured) {
            self.end.others.add(other);
        }
    }

    fn show(&mut self, captured: &Captured<'_>) -> Result<(), SkipReason> {
        let number = captured.interface.ok_or(SkipReason::Interface)?;
        let (interface, name) = self.interfaces.get(number).ok_or(SkipReason::Interface)?;
        let time_ns = captured.time_ns.ok_or(SkipReason::Time)?;
        let begin = link::begin(interface.link, interface.is_big_endian, captured.bytes)?;
        let (ethertype, at) = match begin.next {
            Next::Ethernet => (None, begin.at),
            Next::EtherType(of) => (Some(of), begin.at),
            // Headers without an EtherType are skipped here.
            next => {
                let at = link::find(captured.bytes, next, begin.at)?;
                (Some(link::ethertype_of(captured.bytes, at)?), at)
            }
        };
        let header_bytes = u32::try_from(at).unwrap_or(u32::MAX);
        let length = captured.length.saturating_sub(header_bytes);
        let way = captured.direction.map(|direction| match direction {
            Direction::In => PacketDirection::In,
            Direction::Out => PacketDirection::Out,
        });
        let marked = way.or(begin.way);
        let mut raw = Raw {
            time: Instant::from_nanos(time_ns.min(u64::MAX / 2)),
            way: marked.unwrap_or(PacketDirection::In),
            ethertype,
            length: begin.length.map_or(length, |said| said.min(length)),
            segment_bytes: None,
            mtu_bytes: self.begun.mtu_bytes,
            bytes: captured.bytes.get(at..).unwrap_or_default(),
        };
        let trailer_bytes = captured.fcs_bytes.max(begin.trailer_bytes);
        raw.length = without_trailer(&raw, trailer_bytes.into());
        (self.see)(&Read {
            interface: number,
            name,
            device: interface.name.as_deref(),
            raw,
            is_marked: marked.is_some(),
            position: self.begun.taken.get(),
        });
        Ok(())
    }
}

/// Returns the length of a packet without the check sequence of its frame. If this length is
/// smaller than the length in the IP header, the frame has no check sequence, although the file
/// declares one; the whole length is then returned.
fn without_trailer(raw: &Raw<'_>, trailer_bytes: u32) -> u32 {
    let Some(short) = raw.length.checked_sub(trailer_bytes) else { return raw.length };
    let cut = Raw { length: short, ..*raw };
    let fits = |(bytes, length): (&[u8], u32)| said_bytes(bytes).is_none_or(|said| said <= length);
    if cut.ip().is_none_or(fits) { short } else { raw.length }
}

/// Returns a name without control characters, which is safe to print on a terminal.
fn plain(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
