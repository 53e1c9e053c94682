//! Capture files, read as streams: pcap (pcap-savefile(5), draft-ietf-opsawg-pcap) and pcapng
//! (draft-ietf-opsawg-pcapng).
//!
//! ```text
//!  bytes --> Input: a buffer as large as a block --> pcap: a header, records --+--> Record
//!                                                    ng: blocks, of which most +
//!                                                        are skipped
//! ```
//!
//! The source is read once, from its beginning to its end, and a record is returned as soon as its
//! last byte has arrived. Numbers have the byte order that the file, or each section of it,
//! declares. A file that contradicts itself causes an error with the offset of the faulty record or
//! block.
//!
//! Bounds: [`BLOCK_BYTES_MAX`] bytes of a record or block whose content is read (memory grows only
//! as bytes arrive); [`INTERFACES_MAX`] interfaces of a file.

mod input;
mod ng;
mod pcap;

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

use self::input::Input;
use self::ng::Blocks;
use self::pcap::Records;
use crate::Direction;

/// Largest number of interfaces of a file.
pub const INTERFACES_MAX: usize = 256;
/// Largest number of bytes of a record, or of a block whose content is read.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;
/// Bytes at the beginning of a file that identify its format.
pub const MAGIC_BYTES: usize = 12;

/// First bytes of files in formats that are not supported, each with a description of the format
/// and a remedy.
const FOREIGN: &[(&[u8], &str)] = &[
    (b"\xa1\xb2\xcd\x34", KUZNETZOV),
    (b"\x34\xcd\xb2\xa1", KUZNETZOV),
    (b"\xa1\xb2\x34\xcd", MODIFIED),
    (b"\xcd\x34\xb2\xa1", MODIFIED),
    (b"\xa1\x2b\x3c\x4d", MODIFIED),
    (b"\x4d\x3c\x2b\xa1", MODIFIED),
    (b"snoop\0\0\0", "a file of snoop: convert it with `editcap -F pcapng`"),
    (b"GMBU", "a file of Microsoft Network Monitor: convert it with `editcap -F pcapng`"),
    (b"RTSS", "a file of Microsoft Network Monitor: convert it with `editcap -F pcapng`"),
    (b"\xfd7zXZ\0", "compressed with xz: `xz -dc FILE` writes it to a pipe"),
    (b"BZh", "compressed with bzip2: `bzip2 -dc FILE` writes it to a pipe"),
    (b"\x04\x22\x4d\x18", "compressed with lz4: `lz4 -dc FILE` writes it to a pipe"),
    (b"PK\x03\x04", "a ZIP archive: `unzip -p FILE` writes what is in it to a pipe"),
];
const KUZNETZOV: &str = "a pcap file as modified by Alexey Kuznetzov (magic 0xa1b2cd34), whose \
                         records have several layouts: convert it with `tcpdump -r FILE -w NEW`";
const MODIFIED: &str = "a pcap file in a modified format: convert it with `tcpdump -r FILE -w NEW`";

/// Reason why a file cannot be read, or cannot be read further.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The source returned an error.
    Io(io::Error),
    /// The file is empty.
    Empty,
    /// The file has a format that is not supported. Contains a description of the format, if the
    /// format is recognised.
    Foreign(Option<&'static str>),
    /// The file contradicts itself in a record or block.
    Damaged {
        /// Byte offset of the record or block.
        offset: u64,
        /// Description of the contradiction.
        why: &'static str,
    },
    /// The file ends within a record or block, or a compressed file ends within its data.
    Cut {
        /// Byte offset of the record or block.
        offset: u64,
    },
    /// The file has more interfaces than [`INTERFACES_MAX`].
    Interfaces,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Empty => f.write_str("neither a pcap nor a pcapng file: it is empty"),
            Self::Foreign(None) => f.write_str("neither a pcap nor a pcapng file"),
            Self::Foreign(Some(what)) => write!(f, "neither a pcap nor a pcapng file, but {what}"),
            Self::Damaged { offset, why } => write!(f, "damaged at byte {offset}: {why}"),
            Self::Cut { offset } => {
                write!(f, "ends within the packet or block that begins at byte {offset}")
            }
            Self::Interfaces => write!(f, "more than {INTERFACES_MAX} interfaces"),
        }
    }
}

impl std::error::Error for ReadError {}

/// An interface of a file. A pcap file has exactly one interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Name of the interface, if the file contains a name.
    pub name: Option<String>,
    /// Type of the link header of the interface's packets (`LINKTYPE_` of tcpdump.org).
    pub link: u16,
    /// Whether numbers in the byte order of the capturing machine are big-endian.
    pub is_big_endian: bool,
}

/// A packet of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured<'a> {
    /// Interface of the packet, counted over all sections; `None` if the file does not describe the
    /// interface.
    pub interface: Option<usize>,
    /// Time of the packet, in nanoseconds since 1970; `None` in a simple packet block.
    pub time_ns: Option<u64>,
    /// Direction of the packet; `None` if the file does not contain it.
    pub direction: Option<Direction>,
    /// Length of the packet on the link in bytes, including the frame check sequence if there is
    /// one.
    pub length: u32,
    /// Number of bytes of the frame check sequence at the end of the packet; zero if the file
    /// declares no frame check sequence.
    pub fcs_bytes: u8,
    /// Bytes of the packet; only the first bytes, if the packet was cut off.
    pub bytes: &'a [u8],
}

/// A record of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// An interface. Interfaces are numbered from zero, in the order in which they are returned.
    Interface(Interface),
    /// A packet of the file.
    Packet(Captured<'a>),
}

/// A packet whose bytes are in the buffer.
struct Placed {
    packet: Captured<'static>,
    bytes: Range<usize>,
}

/// A record that was found, with the number of bytes in the buffer that it occupies; or the end of
/// the file.
enum Step {
    Interface(Interface, usize),
    Packet(Placed, usize),
    End,
}

enum Format {
    Pcap(Records),
    Ng(Blocks),
}

/// Reader of a capture file.
pub struct Reader<R> {
    input: Input<R>,
    format: Format,
    /// Number of bytes of the record that was returned last.
    used: usize,
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("offset", &self.offset()).finish_non_exhaustive()
    }
}

impl<R> Reader<R> {
    /// Returns the byte offset in the file of the record that was returned last.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of a file, and determines the format of the file.
    ///
    /// # Errors
    /// [`ReadError`], if the file is in neither format, or the source returns an error.
    pub fn new(source: R) -> Result<Self, ReadError> {
        let mut input = Input::new(source);
        if !input.fill(4)? {
            return Err(match input.data().is_empty() {
                _ if input.is_cut() => ReadError::Cut { offset: 0 },
                true => ReadError::Empty,
                false => ReadError::Foreign(None),
            });
        }
        // A file that is too short for the longest magic number may have a shorter one.
        input.fill(MAGIC_BYTES)?;
        let format = if ng::is_section(input.data()) {
            Format::Ng(Blocks::new())
        } else if let Some(found) = Records::begin(&mut input)? {
            Format::Pcap(found)
        } else {
            let found = FOREIGN.iter().find(|(magic, _)| input.data().starts_with(magic));
            return Err(ReadError::Foreign(found.map(|(_, what)| *what)));
        };
        Ok(Self { input, format, used: 0 })
    }

    /// Returns the next record; `None` at the end of the file.
    ///
    /// # Errors
    /// See [`ReadError`]. After an error nothing more can be read.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        self.input.consume(std::mem::take(&mut self.used));
        let step = match &mut self.format {
            Format::Pcap(records) => records.step(&mut self.input)?,
            Format::Ng(blocks) => blocks.step(&mut self.input)?,
        };
        Ok(match step {
            // The records of a compressed source whose last bytes are missing may be complete.
            Step::End if self.input.is_cut() => {
                return Err(ReadError::Cut { offset: self.input.offset() });
            }
            Step::End => None,
            Step::Interface(found, used) => {
                self.used = used;
                Some(Record::Interface(found))
            }
            Step::Packet(Placed { packet, bytes }, used) => {
                self.used = used;
                let bytes = &self.input.data()[bytes];
                Some(Record::Packet(Captured { bytes, ..packet }))
            }
        })
    }
}

/// Byte order of the numbers in a file or section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// Returns the two-byte number at offset `at`.
    ///
    /// # Panics
    /// If `bytes` ends before the number does.
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Returns the four-byte number at offset `at`.
    ///
    /// # Panics
    /// If `bytes` ends before the number does.
    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let (one, other) = (self.u16(bytes, at), self.u16(bytes, at + 2));
        let (low, high) = match self {
            Self::Little => (one, other),
            Self::Big => (other, one),
        };
        u32::from(high) << 16 | u32::from(low)
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
