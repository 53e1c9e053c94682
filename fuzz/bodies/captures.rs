//! The fuzz targets of capture files: the input is read at once and byte by byte, and each packet
//! is parsed like in `srd watch` and `srd profile`.
#![allow(dead_code)] // each target uses one function

use std::io::{self, Read};

use srd_pcapng::read::{BLOCK_BYTES_MAX, INTERFACES_MAX, ReadError, Reader, Record};
use srd_watch::file::{self, FileError};

/// Header of a pcap file, for an input that begins without one: microseconds, version 2.4,
/// Ethernet.
const PCAP: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
const PCAP_MAGICS: [[u8; 4]; 4] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
];
/// Type of a section header of pcapng. [`PCAPNG`] is such a header, followed by an Ethernet
/// interface.
const SECTION_TYPE: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAPNG: [u8; 48] = [
    0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 28, 0, 0, 0, 1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20,
    0, 0, 0,
];

/// Reads the input as a pcap file.
pub(crate) fn pcap(bytes: &[u8]) {
    let has_magic = PCAP_MAGICS.iter().any(|magic| bytes.starts_with(magic));
    check(&if has_magic { bytes.to_vec() } else { [&PCAP, bytes].concat() });
}

/// Reads the input as a pcapng file.
pub(crate) fn pcapng(bytes: &[u8]) {
    let has_section = bytes.starts_with(&SECTION_TYPE);
    check(&if has_section { bytes.to_vec() } else { [&PCAPNG, bytes].concat() });
}

fn check(bytes: &[u8]) {
    let whole = records(bytes, bytes.len());
    assert_eq!(whole, records(Dribble(bytes), bytes.len()), "the source's pieces change nothing");
    let mut shown = 0_u64;
    let end = file::packets_in(&mut &bytes[..], Some(1500), &mut |read| {
        shown += 1;
        assert!(read.interface < INTERFACES_MAX && read.raw.bytes.len() <= bytes.len());
        match read.raw.arrival() {
            Some(arrival) => {
                assert!(arrival.packets >= 1 && arrival.packet_bytes <= arrival.bytes);
                assert!(!arrival.flow.to_string().is_empty());
            }
            None => assert!(!format!("{:?}", read.raw.other()).is_empty()),
        }
    });
    match end {
        Ok(end) => {
            assert_eq!(end.packets, shown + end.others.total(), "each packet is shown or counted");
            assert_eq!(end.packets, whole.packets);
            assert_eq!(end.error.is_some(), whole.error.is_some());
        }
        Err(FileError::Unknown(_)) => assert_eq!(whole.packets, 0),
        Err(error) => panic!("memory has no errors: {error}"),
    }
}

/// Summary of the packets of a file.
#[derive(PartialEq, Eq, Debug, Default)]
struct Summary {
    interfaces: usize,
    packets: u64,
    /// Checksum over all fields of all packets.
    sum: u64,
    error: Option<String>,
}

fn records(source: impl Read, length: usize) -> Summary {
    let mut summary = Summary::default();
    let mut reader = match Reader::new(source) {
        Ok(reader) => reader,
        Err(error) => return Summary { error: Some(error.to_string()), ..summary },
    };
    loop {
        match reader.next_record() {
            Ok(None) => break,
            Ok(Some(Record::Interface(_))) => summary.interfaces += 1,
            Ok(Some(Record::Packet(packet))) => {
                summary.packets += 1;
                assert!(packet.bytes.len() <= BLOCK_BYTES_MAX.min(length));
                assert!(packet.interface.is_none_or(|number| number < summary.interfaces));
                let bytes = packet
                    .bytes
                    .iter()
                    .fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
                for part in [packet.time_ns.unwrap_or(1), packet.length.into(), bytes] {
                    summary.sum = summary.sum.wrapping_mul(31).wrapping_add(part);
                }
            }
            Err(error) => {
                if let ReadError::Damaged { offset, .. } | ReadError::Cut { offset } = error {
                    assert!(offset <= length as u64, "{error}");
                }
                summary.error = Some(error.to_string());
                break;
            }
        }
        assert!(reader.offset() <= length as u64);
    }
    assert!(summary.interfaces <= INTERFACES_MAX);
    summary
}

/// A source that returns one byte at a time.
struct Dribble<'a>(&'a [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = to.len().min(1);
        self.0.read(&mut to[..most])
    }
}
