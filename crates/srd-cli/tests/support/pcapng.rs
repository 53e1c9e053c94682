//! Reader for the files of `srd capture` and `srd card capture`: packets by layer and direction.
//!
//! ```text
//!  block   type (4) | length (4) | body, padded to 4 | length (4)
//!
//!  interface   link type (2) | 0 (2) | snaplen (4) | options: name
//!  packet      interface (4) | time (8) | kept (4) | length (4) | bytes, padded
//!              | options: flags, comment
//!  statistics  interface (4) | time (8) | options: dropped
//! ```
//!
//! Written from draft-ietf-opsawg-pcapng and not from the writer. It reads little-endian files with
//! complete packets; anything else fails the test.

use std::path::Path;

const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
const INTERFACE_NAME: u16 = 2;
const COMMENT: u16 = 1;
const PACKET_FLAGS: u16 = 2;
const STATISTICS_DROPPED: u16 = 5;

/// A packet of the capture, which begins with the IP header.
#[derive(Debug)]
pub(crate) struct Packet {
    /// Whether the packet is an outer packet, which contains the headers of the network between the
    /// machines. Inner packets are the packets of the applications.
    pub(crate) is_outer: bool,
    /// Whether the packet leaves the machine; otherwise it arrives.
    pub(crate) leaves: bool,
    /// Bytes of the whole packet.
    pub(crate) bytes: Vec<u8>,
    /// The comment of the packet in the file; empty if the file has no comment for it.
    pub(crate) comment: String,
}

/// A capture file.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    /// Packets in the order of the file.
    pub(crate) packets: Vec<Packet>,
    /// Number of packets that the file reports as missing; `None` if the file has no such report.
    pub(crate) dropped: Option<u64>,
}

impl Capture {
    /// Reads a capture file.
    pub(crate) fn read(path: &Path) -> Self {
        let file = std::fs::read(path).unwrap();
        let (mut capture, mut outer_interfaces) = (Self::default(), Vec::new());
        let mut rest = &file[..];
        while !rest.is_empty() {
            let length = number(rest, 4);
            assert_eq!(number(rest, length - 4), length, "both lengths of a block agree");
            let body = &rest[8..length - 4];
            match u32::from_le_bytes(rest[..4].try_into().unwrap()) {
                SECTION => assert_eq!(number(body, 0), 0x1A2B_3C4D, "little-endian"),
                INTERFACE => {
                    let name = option(&body[8..], INTERFACE_NAME).unwrap();
                    outer_interfaces.push(name.ends_with(b" outer"));
                }
                PACKET => capture.packets.push(packet(body, &outer_interfaces)),
                STATISTICS => {
                    let dropped = option(&body[12..], STATISTICS_DROPPED).unwrap();
                    let dropped = u64::from_le_bytes(dropped.try_into().unwrap());
                    *capture.dropped.get_or_insert(0) += dropped;
                }
                _ => {}
            }
            rest = &rest[length..];
        }
        capture
    }

    /// Returns the packets of one layer (outer or inner) and one direction (leaving or arriving).
    pub(crate) fn of(&self, is_outer: bool, leaves: bool) -> impl Iterator<Item = &[u8]> {
        let wanted = move |p: &&Packet| p.is_outer == is_outer && p.leaves == leaves;
        self.packets.iter().filter(wanted).map(|p| &p.bytes[..])
    }
}

fn packet(body: &[u8], outer_interfaces: &[bool]) -> Packet {
    let (kept, length) = (number(body, 12), number(body, 16));
    assert_eq!(kept, length, "packets are whole");
    let options = &body[20 + kept.next_multiple_of(4)..];
    let flags = option(options, PACKET_FLAGS).unwrap();
    let comment = option(options, COMMENT).unwrap_or_default();
    Packet {
        is_outer: outer_interfaces[number(body, 0)],
        leaves: match flags[0] & 3 {
            1 => false,
            2 => true,
            other => panic!("direction {other}"),
        },
        bytes: body[20..20 + kept].to_vec(),
        comment: String::from_utf8(comment.to_vec()).unwrap(),
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Returns the value of the option with the code `wanted` from a list of pcapng options.
fn option(mut list: &[u8], wanted: u16) -> Option<&[u8]> {
    while list.len() >= 4 {
        let code = u16::from_le_bytes([list[0], list[1]]);
        let length = usize::from(u16::from_le_bytes([list[2], list[3]]));
        if code == wanted {
            return Some(&list[4..4 + length]);
        }
        if code == 0 {
            break;
        }
        list = &list[4 + length.next_multiple_of(4)..];
    }
    None
}
