//! The pcapng format, draft-ietf-opsawg-pcapng.
//!
//! ```text
//!  block  type (4) | length (4) | body, padded to 4 | length (4)
//!
//!  0x0A0D0D0A section     byte order 0x1A2B3C4D (4) | version (2.2) | length (8) | options
//!  0x00000001 interface   link type (2) | 0 (2) | snaplen (4) | options: name, resolution and
//!                         offset of times, FCS length
//!  0x00000006 packet      interface (4) | time (4, 4) | kept (4) | length (4) | bytes | options
//!  0x00000002 obsolete    interface (2) | drops (2) | time (4, 4) | kept (4) | length (4) | bytes
//!             packet      | options
//!  0x00000003 simple      length (4) | bytes
//!             packet
//!  others                 are skipped
//! ```
//!
//! The numbers of interfaces start from zero in each section. Each section declares its byte order.

use std::io::Read;

use super::input::Input;
use super::{BLOCK_BYTES_MAX, Captured, INTERFACES_MAX, Interface, Order, Placed, ReadError, Step};
use crate::{Direction, INTERFACE, INTERFACE_NAME, INTERFACE_RESOLUTION, PACKET};
use crate::{PACKET_FLAGS, SECTION};

const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const MAJOR: u16 = 1;
const HEAD_BYTES: usize = 8;
const TAIL_BYTES: usize = 4;
/// Smallest length of a block in bytes: type, length, and the repeated length.
const BLOCK_BYTES_MIN: u32 = 12;
/// Number of bytes of a section block before its options, including the type of the block.
const SECTION_BYTES: usize = HEAD_BYTES + 16;
/// Number of bytes of an interface block before its options, including the type of the block.
const INTERFACE_BYTES: usize = HEAD_BYTES + 8;
/// Number of bytes of a packet block before the packet, including the type of the block.
const PACKET_BYTES: usize = HEAD_BYTES + 20;
/// Number of bytes of a simple packet block before the packet, including the type of the block.
const SIMPLE_BYTES: usize = HEAD_BYTES + 4;
const INTERFACE_FCS: u16 = 13;
const INTERFACE_OFFSET: u16 = 14;
const NANO: i128 = 1_000_000_000;
/// Largest number of bytes of a frame check sequence.
const FCS_BYTES_MAX: u8 = 8;
const TOO_SHORT: &str = "the block there is too short for its type";

/// Parameters of an interface that are needed to read its packets.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Number of units of time in a second.
    resolution: u64,
    /// Seconds that are added to each time.
    offset_s: i64,
    snaplen: u32,
    fcs_bytes: u8,
}

impl Default for Times {
    fn default() -> Self {
        Self { resolution: 1_000_000, offset_s: 0, snaplen: 0, fcs_bytes: 0 }
    }
}

/// Reader of the blocks of a file.
pub(super) struct Blocks {
    order: Order,
    interfaces: Vec<Times>,
    /// Index in `interfaces` of the current section's first interface.
    base: usize,
}

/// Whether a file with these first bytes begins with a section block.
pub(super) fn is_section(bytes: &[u8]) -> bool {
    let is_order =
        |bytes: &[u8]| bytes == BYTE_ORDER.to_le_bytes() || bytes == BYTE_ORDER.to_be_bytes();
    bytes.starts_with(&SECTION.to_le_bytes()) && bytes.get(8..12).is_some_and(is_order)
}

impl Blocks {
    pub(super) fn new() -> Self {
        Self { order: Order::Little, interfaces: Vec::new(), base: 0 }
    }

    pub(super) fn step<R: Read>(&mut self, input: &mut Input<R>) -> Result<Step, ReadError> {
        loop {
            let offset = input.offset();
            let cut = || ReadError::Cut { offset };
            let damaged = |why: &'static str| ReadError::Damaged { offset, why };
            if !input.fill(HEAD_BYTES)? {
                return if input.data().is_empty() { Ok(Step::End) } else { Err(cut()) };
            }
            // The type of a section is the same in both byte orders.
            if input.data().starts_with(&SECTION.to_le_bytes()) {
                if !input.fill(HEAD_BYTES + 4)? {
                    return Err(cut());
                }
                self.order = order_of(input.data()).map_err(damaged)?;
            }
            let kind = self.order.u32(input.data(), 0);
            let length = self.order.u32(input.data(), 4);
            if !length.is_multiple_of(4) || length < BLOCK_BYTES_MIN {
                return Err(damaged("the length of the block there is no multiple of 4 above 8"));
            }
            let is_read = [SECTION, INTERFACE, OBSOLETE_PACKET, SIMPLE_PACKET, PACKET];
            if !is_read.contains(&kind) {
                if !input.skip(u64::from(length) - 4)? || !input.fill(TAIL_BYTES)? {
                    return Err(cut());
                }
                self.check_tail(input.data(), length).map_err(damaged)?;
                input.consume(TAIL_BYTES);
                continue;
            }
            let used = usize::try_from(length).unwrap_or(usize::MAX);
            if used > BLOCK_BYTES_MAX {
                return Err(damaged("the block there claims to be larger than any can be"));
            }
            if !input.fill(used)? {
                return Err(cut());
            }
            let tail = used - TAIL_BYTES;
            self.check_tail(&input.data()[tail..], length).map_err(damaged)?;
            let block = &input.data()[..tail];
            match kind {
                SECTION => self.section(block).map_err(damaged)?,
                INTERFACE => {
                    if self.interfaces.len() >= INTERFACES_MAX {
                        return Err(ReadError::Interfaces);
                    }
                    return Ok(Step::Interface(self.interface(block).map_err(damaged)?, used));
                }
                SIMPLE_PACKET => {
                    return Ok(Step::Packet(self.simple(block).map_err(damaged)?, used));
                }
                _ => return Ok(Step::Packet(self.packet(kind, block).map_err(damaged)?, used)),
            }
            input.consume(used);
        }
    }

    fn check_tail(&self, tail: &[u8], length: u32) -> Result<(), &'static str> {
        let is_same = self.order.u32(tail, 0) == length;
        if is_same { Ok(()) } else { Err("the two lengths of the block there disagree") }
    }

    fn section(&mut self, block: &[u8]) -> Result<(), &'static str> {
        if block.len() < SECTION_BYTES {
            return Err(TOO_SHORT);
        }
        if self.order.u16(block, 12) != MAJOR {
            return Err("the section there has a version other than 1.x");
        }
        self.base = self.interfaces.len();
        Ok(())
    }

    fn interface(&mut self, block: &[u8]) -> Result<Interface, &'static str> {
        if block.len() < INTERFACE_BYTES {
            return Err(TOO_SHORT);
        }
        let (mut times, mut name) = (Times::default(), None);
        times.snaplen = self.order.u32(block, HEAD_BYTES + 4);
        for option in options(self.order, &block[INTERFACE_BYTES..]) {
            match option? {
                (INTERFACE_NAME, value) => name = Some(String::from_utf8_lossy(value).into_owned()),
                (INTERFACE_RESOLUTION, value) => times.resolution = resolution(value)?,
                (INTERFACE_OFFSET, value) => times.offset_s = self.offset(value)?,
                (INTERFACE_FCS, [value]) => times.fcs_bytes = fcs_bytes(*value),
                _ => {}
            }
        }
        self.interfaces.push(times);
        let is_big_endian = self.order == Order::Big;
        Ok(Interface { name, link: self.order.u16(block, HEAD_BYTES), is_big_endian })
    }

    /// Returns the seconds that are added to each time: a signed number in the byte order of the
    /// section.
    fn offset(&self, value: &[u8]) -> Result<i64, &'static str> {
        let bytes: [u8; 8] = value.try_into().map_err(|_| "if_tsoffset has not 8 bytes")?;
        Ok(match self.order {
            Order::Little => i64::from_le_bytes(bytes),
            Order::Big => i64::from_be_bytes(bytes),
        })
    }

    fn packet(&self, kind: u32, block: &[u8]) -> Result<Placed, &'static str> {
        if block.len() < PACKET_BYTES {
            return Err(TOO_SHORT);
        }
        let word = |n: usize| self.order.u32(block, HEAD_BYTES + 4 * n);
        // In the obsolete block, the second half of the word counts packets that were dropped.
        let number = match kind {
            OBSOLETE_PACKET => u32::from(self.order.u16(block, HEAD_BYTES)),
            _ => word(0),
        };
        let number = self.base.saturating_add(usize::try_from(number).unwrap_or(usize::MAX));
        let times = self.interfaces.get(number);
        let kept = word(3);
        let kept_bytes = usize::try_from(kept).unwrap_or(usize::MAX);
        let end = PACKET_BYTES.saturating_add(kept_bytes);
        let rest = block.get(end.checked_next_multiple_of(4).unwrap_or(usize::MAX)..);
        let rest = rest.ok_or("the packet there is longer than its block")?;
        let mut direction = None;
        let mut fcs_bytes = times.map_or(0, |times| times.fcs_bytes);
        for option in options(self.order, rest) {
            let (code, value) = option?;
            if code == PACKET_FLAGS && value.len() == 4 {
                let flags = self.order.u32(value, 0);
                direction = match flags & 3 {
                    1 => Some(Direction::In),
                    2 => Some(Direction::Out),
                    _ => None,
                };
                // Bits 5 to 8; zero: not specified.
                let said = u8::try_from(flags >> 5 & 0xf).unwrap_or(0);
                fcs_bytes = if said > 0 { said } else { fcs_bytes };
            }
        }
        let units = u64::from(word(1)) << 32 | u64::from(word(2));
        let packet = Captured {
            interface: times.map(|_| number),
            time_ns: Some(times.map_or(0, |times| times.nanoseconds(units))),
            direction,
            length: word(4).max(kept),
            fcs_bytes,
            bytes: &[],
        };
        Ok(Placed { packet, bytes: PACKET_BYTES..end })
    }

    /// Reads a simple packet block. Its packet belongs to the first interface of the section and
    /// has no time.
    fn simple(&self, block: &[u8]) -> Result<Placed, &'static str> {
        if block.len() < SIMPLE_BYTES {
            return Err(TOO_SHORT);
        }
        let first = self.interfaces.get(self.base);
        let length = self.order.u32(block, HEAD_BYTES);
        let snaplen = first.map_or(0, |times| times.snaplen);
        let kept = if snaplen > 0 { length.min(snaplen) } else { length };
        let kept_bytes = usize::try_from(kept).unwrap_or(usize::MAX);
        let end = SIMPLE_BYTES.saturating_add(kept_bytes);
        if end > block.len() {
            return Err("the packet there is longer than its block");
        }
        let packet = Captured {
            interface: first.map(|_| self.base),
            time_ns: None,
            direction: None,
            length,
            fcs_bytes: first.map_or(0, |times| times.fcs_bytes),
            bytes: &[],
        };
        Ok(Placed { packet, bytes: SIMPLE_BYTES..end })
    }
}

impl Times {
    /// Converts a time to nanoseconds since 1970. An earlier time becomes zero. The largest result
    /// is half of the largest 64-bit number.
    fn nanoseconds(&self, units: u64) -> u64 {
        let since = i128::from(units) * NANO / i128::from(self.resolution);
        let ns = since + i128::from(self.offset_s) * NANO;
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX).min(u64::MAX / 2)
    }
}

/// Returns the byte order of a section. `section` has at least the first 12 bytes of the section.
fn order_of(section: &[u8]) -> Result<Order, &'static str> {
    let found = [Order::Little, Order::Big];
    let found = found.into_iter().find(|order| order.u32(section, HEAD_BYTES) == BYTE_ORDER);
    found.ok_or("the section there has no byte order")
}

/// Returns the number of units of time in a second, which is a power of ten or of two.
fn resolution(value: &[u8]) -> Result<u64, &'static str> {
    let [value] = value else { return Err("if_tsresol has not one byte") };
    let base: u64 = if value & 0x80 == 0 { 10 } else { 2 };
    base.checked_pow(u32::from(value & 0x7f)).ok_or("if_tsresol is finer than 64 bits can count")
}

/// Returns the length of the frame check sequence in bytes. The draft defines the value in bits,
/// but its example is 4. So a value that is too large for bytes is taken as bits.
fn fcs_bytes(value: u8) -> u8 {
    if value <= FCS_BYTES_MAX { value } else { value / 8 }
}

/// Returns the options of a block, each with its code and its value.
fn options(
    order: Order,
    mut list: &[u8],
) -> impl Iterator<Item = Result<(u16, &[u8]), &'static str>> {
    std::iter::from_fn(move || {
        if list.len() < 4 {
            return None;
        }
        let (code, length) = (order.u16(list, 0), usize::from(order.u16(list, 2)));
        if code == 0 {
            return None;
        }
        let padded = 4 + length.next_multiple_of(4);
        let (Some(value), Some(rest)) = (list.get(4..4 + length), list.get(padded..)) else {
            list = &[];
            return Some(Err("an option of the block there is longer than the block"));
        };
        list = rest;
        Some(Ok((code, value)))
    })
}
