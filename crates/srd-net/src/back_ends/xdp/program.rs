//! The XDP program: it selects the packets of an interface for the endpoint's AF_XDP socket.
//!
//! ```text
//! Ethernet, IPv4 without options and not a fragment, or IPv6 without extension headers,
//! to our address, UDP to our base port, and no longer than the socket receives
//!     -> the socket of the queue that it came by (or to the kernel, if the queue has none)
//! everything else
//!     -> to the kernel, untouched
//! ```
//!
//! The program compares bytes in the order of the packet. So constants are made from bytes in this
//! order, and only the length is converted.
//!
//! A packet whose UDP checksum is incomplete (`CHECKSUM_PARTIAL`: the field holds the sum over the
//! pseudo-header) has not been on a wire. In native mode such a packet is a single packet, from the
//! other end of a veth. In generic mode, later in the kernel's receive path, it may also be several
//! packets that segmentation offload has not cut yet, or that receive offload has joined. The
//! program cannot detect this, but the kernel can, so in generic mode these packets are left to the
//! kernel.

use std::net::IpAddr;

use crate::interfaces::assembler::{
    ARGUMENT_1, ARGUMENT_2, ARGUMENT_3, Assembler, If, Label, RESULT, Width,
};
use crate::sys::bpf::{Instruction, Mode};

/// Verdict that passes the packet to the kernel.
pub(super) const XDP_PASS: u8 = 2;

/// Conditions for the packets that the program passes to the AF_XDP socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketFilter {
    /// Local address of the endpoint.
    pub(super) address: IpAddr,
    /// Base port of the endpoint.
    pub(super) port: u16,
    /// Largest IP packet that the socket receives, in bytes.
    pub(super) ip_bytes_max: u16,
    /// Hook at which the program runs.
    pub(super) mode: Mode,
    /// Descriptor of the map of sockets.
    pub(super) map: i32,
    /// Verdict on a packet that matches, if its queue has no socket.
    pub(super) otherwise: u8,
}

/// Register of a value that is compared.
const VALUE: u8 = 4;
/// Register of the sum over the pseudo-header.
const SUM: u8 = 5;
/// Register of the context; calls preserve it.
const CONTEXT: u8 = 6;
/// Register of the packet's start.
const PACKET: u8 = 7;
/// Register of the packet's end.
const END: u8 = 8;

/// Number of the kernel's function `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

/// Offset of the address of the packet's start in `struct xdp_md`.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;

/// Bytes of an Ethernet header.
const ETHERNET: i16 = 14;

/// The program that is being written, and the label that passes packets to the kernel.
struct Writer {
    code: Assembler,
    pass: Label,
}

impl Writer {
    /// Passes the packet to the kernel, unless the low 32 bits of `register` are `value`.
    fn pass_unless(&mut self, register: u8, value: u32) {
        self.code.jump_if(register, If::Low32Differs(value), self.pass);
    }

    /// Passes the packet to the kernel, unless the bytes at `offset` are `bytes`.
    fn pass_unless_bytes(&mut self, offset: i16, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        loop {
            let (width, value) = match *rest {
                [a, b, c, d, ..] => (Width::Word, u32::from_ne_bytes([a, b, c, d])),
                [a, b, ..] => (Width::Half, u32::from(u16::from_ne_bytes([a, b]))),
                [a] => (Width::Byte, u32::from(a)),
                [] => return,
            };
            self.code.load(width, VALUE, PACKET, at);
            self.pass_unless(VALUE, value);
            at += width.bytes();
            rest = &rest[width.bytes().unsigned_abs().into()..];
        }
    }

    /// Passes the packet to the kernel, if its 16 bits at `offset` are above `value`.
    fn pass_if_above(&mut self, offset: i16, value: u16) {
        self.code.load(Width::Half, VALUE, PACKET, offset);
        self.code.swap_from_network_16(VALUE);
        self.code.jump_if(VALUE, If::Above(i32::from(value)), self.pass);
    }

    /// Passes the packet to the kernel, unless its bits at `offset`, masked with `mask`, are
    /// `value`.
    fn pass_unless_masked(&mut self, width: Width, offset: i16, mask: i32, value: u32) {
        self.code.load(width, VALUE, PACKET, offset);
        self.code.and(VALUE, mask);
        self.pass_unless(VALUE, value);
    }

    /// Ends the program: packets that were not passed to the kernel go to the socket of their
    /// queue.
    fn redirect(mut self, map: i32, otherwise: u8) -> Vec<Instruction> {
        let code = &mut self.code;
        // r1 = the map
        code.set_map(ARGUMENT_1, map);
        // r2 = context->rx_queue_index
        code.load(Width::Word, ARGUMENT_2, CONTEXT, CONTEXT_QUEUE);
        // r3 = the verdict if the map has no socket for the queue
        code.set(ARGUMENT_3, i32::from(otherwise));
        // return bpf_redirect_map(r1, r2, r3)
        code.call(REDIRECT_MAP);
        code.leave();
        // return XDP_PASS
        code.here(self.pass);
        code.set(RESULT, i32::from(XDP_PASS));
        code.leave();
        self.code.finish()
    }
}

/// Returns the instructions of the program for this filter.
pub(super) fn assemble(filter: &PacketFilter) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let pass = code.place();
    // r6 = context
    code.copy(CONTEXT, ARGUMENT_1);
    // r7 = context->data, r8 = context->data_end
    code.load(Width::Word, PACKET, CONTEXT, CONTEXT_DATA);
    code.load(Width::Word, END, CONTEXT, CONTEXT_END);
    let mut program = Writer { code, pass };
    match filter.address {
        IpAddr::V4(address) => {
            // All headers must be there: pass if data + 42 > data_end.
            bounds(&mut program, ETHERNET + 20 + 8);
            // Ethernet type IPv4; version 4 with a header of five words.
            program.pass_unless_bytes(12, &[0x08, 0x00, 0x45]);
            // Not a fragment: the offset is zero, and "more fragments" is not set.
            let fragment = i32::from(u16::from_ne_bytes([0x3f, 0xff]));
            program.pass_unless_masked(Width::Half, ETHERNET + 6, fragment, 0);
            // Protocol UDP.
            program.pass_unless_bytes(ETHERNET + 9, &[17]);
            // To the endpoint's address and port.
            program.pass_unless_bytes(ETHERNET + 16, &address.octets());
            program.pass_unless_bytes(ETHERNET + 22, &filter.port.to_be_bytes());
            // Not larger than the socket receives.
            program.pass_if_above(ETHERNET + 2, filter.ip_bytes_max);
            if filter.mode == Mode::Generic {
                pass_if_checksum_is_partial(&mut program, ETHERNET + 12, 4, ETHERNET + 26);
            }
        }
        IpAddr::V6(address) => {
            // All headers must be there: pass if data + 62 > data_end.
            bounds(&mut program, ETHERNET + 40 + 8);
            // Ethernet type IPv6; version 6 (the lower four bits are of the traffic class).
            program.pass_unless_bytes(12, &[0x86, 0xdd]);
            program.pass_unless_masked(Width::Byte, ETHERNET, 0xf0, 0x60);
            // UDP follows the IPv6 header directly.
            program.pass_unless_bytes(ETHERNET + 6, &[17]);
            // To the endpoint's address and port.
            program.pass_unless_bytes(ETHERNET + 24, &address.octets());
            program.pass_unless_bytes(ETHERNET + 42, &filter.port.to_be_bytes());
            // Not larger than the socket receives (the field does not count the IPv6 header).
            program.pass_if_above(ETHERNET + 4, filter.ip_bytes_max.saturating_sub(40));
            if filter.mode == Mode::Generic {
                pass_if_checksum_is_partial(&mut program, ETHERNET + 8, 16, ETHERNET + 46);
            }
        }
    }
    program.redirect(filter.map, filter.otherwise)
}

/// Passes the packet to the kernel, if it has fewer than `bytes`.
fn bounds(program: &mut Writer, bytes: i16) {
    // r4 = data + bytes
    program.code.copy(VALUE, PACKET);
    program.code.add_value(VALUE, i32::from(bytes));
    program.code.jump_if(VALUE, If::AboveRegister(END), program.pass);
}

/// Passes the packet to the kernel, if the UDP checksum at `checksum` is the sum over the
/// pseudo-header: two addresses of `address_bytes` from `addresses` on, the protocol and the UDP
/// length.
fn pass_if_checksum_is_partial(
    program: &mut Writer,
    addresses: i16,
    address_bytes: i16,
    checksum: i16,
) {
    let (code, pass) = (&mut program.code, program.pass);
    // sum = protocol, in the byte order of the packet
    code.set(SUM, i32::from(u16::from_ne_bytes([0, 17])));
    // sum += UDP length
    code.load(Width::Half, VALUE, PACKET, checksum - 2);
    code.add_register(SUM, VALUE);
    // sum += each half word of both addresses
    for half in 0..address_bytes {
        code.load(Width::Half, VALUE, PACKET, addresses + 2 * half);
        code.add_register(SUM, VALUE);
    }
    // Twice: sum = (sum & 0xffff) + (sum >> 16)
    for _ in 0..2 {
        code.copy(VALUE, SUM);
        code.shift_right(VALUE, 16);
        code.and(SUM, 0xffff);
        code.add_register(SUM, VALUE);
    }
    // Pass if the sum equals the checksum field.
    code.load(Width::Half, VALUE, PACKET, checksum);
    code.jump_if(VALUE, If::EqualsRegister(SUM), pass);
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
