//! The pcap format, pcap-savefile(5).
//!
//! ```text
//!  header  magic (4) | version (2.2) | 0 (4) | 0 (4) | snaplen (4) | link field (4)
//!  record  seconds (4) | fraction (4) | kept (4) | length (4) | bytes
//!
//!  magic       0xa1b2c3d4 microseconds, 0xa1b23c4d nanoseconds; its byte order is the file's
//!  link field  FCS length in 16-bit words (4 bits) | 0 | length is known | 0 (10) | link type (16)
//! ```

use std::io::Read;

use super::input::Input;
use super::{BLOCK_BYTES_MAX, Captured, Interface, Order, Placed, ReadError, Step};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 16;
const NANO: u64 = 1_000_000_000;
/// Bit of the link field: the length of the frame check sequence is known.
const FCS_KNOWN: u32 = 0x0400_0000;
/// Position in the link field of the frame check sequence's length in 16-bit words.
const FCS_SHIFT: u32 = 28;
/// Bits of the link field with the link type.
const LINK_TYPE: u32 = 0xffff;
/// Major version of the format that is supported.
const MAJOR: u16 = 2;
/// Minor version in which some programs wrote the two lengths of a record in reverse order. In
/// older minor versions, the lengths always have this reverse order.
const MINOR_MIXED: u16 = 3;

/// Reader of the records of a file.
pub(super) struct Records {
    order: Order,
    minor: u16,
    /// Number of nanoseconds in a unit of the fraction.
    unit_ns: u64,
    fcs_bytes: u8,
    link: u16,
    is_begun: bool,
}

impl Records {
    /// Reads the header of a file; `None` if the file has another format.
    pub(super) fn begin<R: Read>(input: &mut Input<R>) -> Result<Option<Self>, ReadError> {
        let magic = |order: Order| order.u32(input.data(), 0);
        let found = [Order::Little, Order::Big].into_iter().find_map(|order| match magic(order) {
            MICROSECONDS => Some((order, 1000)),
            NANOSECONDS => Some((order, 1)),
            _ => None,
        });
        let Some((order, unit_ns)) = found else { return Ok(None) };
        if !input.fill(HEADER_BYTES)? {
            return Err(ReadError::Cut { offset: 0 });
        }
        let header = input.data();
        if order.u16(header, 4) != MAJOR {
            let why = "a version of pcap other than 2.x";
            return Err(ReadError::Damaged { offset: 0, why });
        }
        let field = order.u32(header, 20);
        let fcs_bytes = if field & FCS_KNOWN == 0 { 0 } else { 2 * (field >> FCS_SHIFT) };
        let records = Self {
            order,
            minor: order.u16(header, 6),
            unit_ns,
            fcs_bytes: u8::try_from(fcs_bytes).unwrap_or(0),
            link: u16::try_from(field & LINK_TYPE).unwrap_or(0),
            is_begun: false,
        };
        Ok(Some(records))
    }

    pub(super) fn step<R: Read>(&mut self, input: &mut Input<R>) -> Result<Step, ReadError> {
        if !self.is_begun {
            self.is_begun = true;
            let is_big_endian = self.order == Order::Big;
            let only = Interface { name: None, link: self.link, is_big_endian };
            return Ok(Step::Interface(only, HEADER_BYTES));
        }
        let offset = input.offset();
        if !input.fill(RECORD_BYTES)? {
            let is_over = input.data().is_empty();
            return if is_over { Ok(Step::End) } else { Err(ReadError::Cut { offset }) };
        }
        let word = |n: usize| self.order.u32(input.data(), 4 * n);
        let (seconds, fraction) = (u64::from(word(0)), u64::from(word(1)));
        let (mut kept, mut length) = (word(2), word(3));
        if self.minor < MINOR_MIXED || (self.minor == MINOR_MIXED && kept > length) {
            (kept, length) = (length, kept);
        }
        let kept_bytes = usize::try_from(kept).unwrap_or(usize::MAX);
        if kept_bytes > BLOCK_BYTES_MAX {
            let why = "the packet there claims to be larger than any can be";
            return Err(ReadError::Damaged { offset, why });
        }
        let end = RECORD_BYTES + kept_bytes;
        if !input.fill(end)? {
            return Err(ReadError::Cut { offset });
        }
        let packet = Captured {
            interface: Some(0),
            time_ns: Some(seconds * NANO + fraction * self.unit_ns),
            direction: None,
            // Bytes that were captured were on the link.
            length: length.max(kept),
            fcs_bytes: self.fcs_bytes,
            bytes: &[],
        };
        Ok(Step::Packet(Placed { packet, bytes: RECORD_BYTES..end }, end))
    }
}
