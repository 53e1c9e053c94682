//! The XDP program: which packets of an interface come to the endpoint's AF_XDP socket.
//!
//! ```text
//! Ethernet, IPv4 without options and not a fragment, or IPv6 without extension headers,
//! to our address, UDP to our base port, and no longer than the socket receives
//!     -> the socket of the queue that it came by (or to the kernel, if the queue has none)
//! everything else
//!     -> to the kernel, untouched
//! ```
//!
//! The comparisons are with bytes as they are in the packet, so that constants are made from bytes
//! in that order and nothing is swapped but the length.
//!
//! A packet whose UDP checksum is only begun (`CHECKSUM_PARTIAL`: the field holds the sum over the
//! pseudo-header) never was on a wire. A driver's own XDP sees single packets of that kind, from
//! the other end of a veth. Where the program runs later, in the kernel's path, it may also be a
//! run of packets that segmentation offload has not cut yet, or that receive offload has joined,
//! and nothing says so; the kernel knows, so that there such packets are left to it.

use std::net::IpAddr;

use crate::sys::bpf::{Instruction, Mode};

/// Let the kernel have it.
pub(super) const XDP_PASS: u8 = 2;

/// Which packets the program hands to the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketFilter {
    /// Our address.
    pub(super) address: IpAddr,
    /// Our base port.
    pub(super) port: u16,
    /// The longest IP packet that the socket receives.
    pub(super) ip_bytes_max: u16,
    /// Where the program runs.
    pub(super) mode: Mode,
    /// The descriptor of the map of sockets.
    pub(super) map: i32,
    /// The verdict on a packet that matches, if its queue has no socket.
    pub(super) otherwise: u8,
}

/// Registers by their use.
const RESULT: u8 = 0;
const ARGUMENT_1: u8 = 1;
const ARGUMENT_2: u8 = 2;
const ARGUMENT_3: u8 = 3;
/// A value that is looked at.
const VALUE: u8 = 4;
/// A sum.
const SUM: u8 = 5;
/// The context; calls keep it.
const CONTEXT: u8 = 6;
/// Where the packet begins.
const PACKET: u8 = 7;
/// Where it ends.
const END: u8 = 8;

/// Offsets in `struct xdp_md`.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;

/// Bytes of an Ethernet header.
const ETHERNET: i16 = 14;

/// A width of memory access.
#[derive(Clone, Copy)]
enum Width {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
}

impl Width {
    fn bytes(self) -> i16 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
        }
    }
}

/// A program that is being written. Jumps to its end are filled in last.
struct Assembler {
    code: Vec<Instruction>,
    passes: Vec<usize>,
}

impl Assembler {
    fn add(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        self.code.push(Instruction { code, registers, offset, immediate });
    }

    /// `to = *(width *)(from + offset)`
    fn load(&mut self, width: Width, to: u8, from: u8, offset: i16) {
        self.add(0x61 | width as u8, to, from, offset, 0);
    }

    /// `to = from`
    fn copy(&mut self, to: u8, from: u8) {
        self.add(0xbf, to, from, 0, 0);
    }

    /// `to = value`
    fn set(&mut self, to: u8, value: i32) {
        self.add(0xb7, to, 0, 0, value);
    }

    /// `to += from`
    fn add_register(&mut self, to: u8, from: u8) {
        self.add(0x0f, to, from, 0, 0);
    }

    /// `to += value`
    fn add_value(&mut self, to: u8, value: i32) {
        self.add(0x07, to, 0, 0, value);
    }

    /// `to &= value`
    fn and(&mut self, to: u8, value: i32) {
        self.add(0x57, to, 0, 0, value);
    }

    /// `to >>= bits`
    fn shift_right(&mut self, to: u8, bits: i32) {
        self.add(0x77, to, 0, 0, bits);
    }

    /// The 16 bits of `to` from the packet's order into the machine's.
    fn swap_from_network_16(&mut self, to: u8) {
        self.add(0xdc, to, 0, 0, 16);
    }

    /// To the kernel, unless the low 32 bits of `register` are `value`.
    fn pass_unless(&mut self, register: u8, value: u32) {
        self.passes.push(self.code.len());
        self.add(0x56, register, 0, 0, value.cast_signed());
    }

    /// To the kernel, if `register` is above `value`.
    fn pass_if_above(&mut self, register: u8, value: u16) {
        self.passes.push(self.code.len());
        self.add(0x25, register, 0, 0, i32::from(value));
    }

    /// To the kernel, if one register is above another.
    fn pass_if_above_register(&mut self, register: u8, other: u8) {
        self.passes.push(self.code.len());
        self.add(0x2d, register, other, 0, 0);
    }

    /// To the kernel, if one register equals another.
    fn pass_if_equal(&mut self, register: u8, other: u8) {
        self.passes.push(self.code.len());
        self.add(0x1d, register, other, 0, 0);
    }

    /// To the kernel, unless the bytes at `offset` are these.
    fn pass_unless_bytes(&mut self, offset: i16, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        loop {
            let (width, value) = match *rest {
                [a, b, c, d, ..] => (Width::Word, u32::from_ne_bytes([a, b, c, d])),
                [a, b, ..] => (Width::Half, u32::from(u16::from_ne_bytes([a, b]))),
                [a] => (Width::Byte, u32::from(a)),
                [] => return,
            };
            self.load(width, VALUE, PACKET, at);
            self.pass_unless(VALUE, value);
            at += width.bytes();
            rest = &rest[width.bytes().unsigned_abs().into()..];
        }
    }

    /// Ends the program: what was not passed goes to the socket of its queue.
    fn redirect(mut self, map: i32, otherwise: u8) -> Vec<Instruction> {
        // r1 = the map (a load of two instructions; source 1 says that the constant is a map)
        self.add(0x18, ARGUMENT_1, 1, 0, map);
        self.add(0, 0, 0, 0, 0);
        // r2 = context->rx_queue_index
        self.load(Width::Word, ARGUMENT_2, CONTEXT, CONTEXT_QUEUE);
        // r3 = the verdict if the map has no socket for the queue
        self.set(ARGUMENT_3, i32::from(otherwise));
        // r0 = bpf_redirect_map(r1, r2, r3)
        self.add(0x85, 0, 0, 0, 51);
        // return r0
        self.add(0x95, 0, 0, 0, 0);
        let end = self.code.len();
        for place in self.passes {
            let distance = end - place - 1;
            self.code[place].offset = i16::try_from(distance).unwrap_or(i16::MAX);
        }
        let registers = RESULT;
        // return XDP_PASS
        let pass = i32::from(XDP_PASS);
        self.code.push(Instruction { code: 0xb7, registers, offset: 0, immediate: pass });
        self.code.push(Instruction { code: 0x95, registers: 0, offset: 0, immediate: 0 });
        self.code
    }
}

/// The program.
pub(super) fn assemble(filter: &PacketFilter) -> Vec<Instruction> {
    let mut program = Assembler { code: Vec::new(), passes: Vec::new() };
    // r6 = context
    program.copy(CONTEXT, ARGUMENT_1);
    // r7 = context->data, r8 = context->data_end
    program.load(Width::Word, PACKET, CONTEXT, CONTEXT_DATA);
    program.load(Width::Word, END, CONTEXT, CONTEXT_END);
    match filter.address {
        IpAddr::V4(address) => {
            // All headers must be there: pass if data + 42 > data_end.
            bounds(&mut program, ETHERNET + 20 + 8);
            // Ethernet type IPv4; version 4 with a header of five words.
            program.pass_unless_bytes(12, &[0x08, 0x00, 0x45]);
            // No fragment: neither an offset nor "more fragments".
            program.load(Width::Half, VALUE, PACKET, ETHERNET + 6);
            program.and(VALUE, i32::from(u16::from_ne_bytes([0x3f, 0xff])));
            program.pass_unless(VALUE, 0);
            // Protocol UDP.
            program.pass_unless_bytes(ETHERNET + 9, &[17]);
            // To our address, to our port.
            program.pass_unless_bytes(ETHERNET + 16, &address.octets());
            program.pass_unless_bytes(ETHERNET + 22, &filter.port.to_be_bytes());
            // Not longer than the socket receives.
            program.load(Width::Half, VALUE, PACKET, ETHERNET + 2);
            program.swap_from_network_16(VALUE);
            program.pass_if_above(VALUE, filter.ip_bytes_max);
            if filter.mode == Mode::Generic {
                pass_if_checksum_is_partial(&mut program, ETHERNET + 12, 4, ETHERNET + 26);
            }
        }
        IpAddr::V6(address) => {
            // All headers must be there: pass if data + 62 > data_end.
            bounds(&mut program, ETHERNET + 40 + 8);
            // Ethernet type IPv6; version 6 (the lower four bits are of the traffic class).
            program.pass_unless_bytes(12, &[0x86, 0xdd]);
            program.load(Width::Byte, VALUE, PACKET, ETHERNET);
            program.and(VALUE, 0xf0);
            program.pass_unless(VALUE, 0x60);
            // UDP follows at once.
            program.pass_unless_bytes(ETHERNET + 6, &[17]);
            // To our address, to our port.
            program.pass_unless_bytes(ETHERNET + 24, &address.octets());
            program.pass_unless_bytes(ETHERNET + 42, &filter.port.to_be_bytes());
            // Not longer than the socket receives (the field does not count the IPv6 header).
            program.load(Width::Half, VALUE, PACKET, ETHERNET + 4);
            program.swap_from_network_16(VALUE);
            program.pass_if_above(VALUE, filter.ip_bytes_max.saturating_sub(40));
            if filter.mode == Mode::Generic {
                pass_if_checksum_is_partial(&mut program, ETHERNET + 8, 16, ETHERNET + 46);
            }
        }
    }
    program.redirect(filter.map, filter.otherwise)
}

/// To the kernel, if fewer than `bytes` are there.
fn bounds(program: &mut Assembler, bytes: i16) {
    // r4 = data + bytes
    program.copy(VALUE, PACKET);
    program.add_value(VALUE, i32::from(bytes));
    program.pass_if_above_register(VALUE, END);
}

/// To the kernel, if the UDP checksum at `checksum` is the sum over the pseudo-header: two
/// addresses of `address_bytes` from `addresses` on, the protocol and the UDP length.
fn pass_if_checksum_is_partial(
    program: &mut Assembler,
    addresses: i16,
    address_bytes: i16,
    checksum: i16,
) {
    // sum = protocol, as it is in the packet
    program.set(SUM, i32::from(u16::from_ne_bytes([0, 17])));
    // sum += UDP length
    program.load(Width::Half, VALUE, PACKET, checksum - 2);
    program.add_register(SUM, VALUE);
    // sum += each half word of both addresses
    for half in 0..address_bytes {
        program.load(Width::Half, VALUE, PACKET, addresses + 2 * half);
        program.add_register(SUM, VALUE);
    }
    // Twice: sum = (sum & 0xffff) + (sum >> 16)
    for _ in 0..2 {
        program.copy(VALUE, SUM);
        program.shift_right(VALUE, 16);
        program.and(SUM, 0xffff);
        program.add_register(SUM, VALUE);
    }
    // Pass if it is what the checksum's field holds.
    program.load(Width::Half, VALUE, PACKET, checksum);
    program.pass_if_equal(VALUE, SUM);
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
