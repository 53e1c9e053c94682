//! The program at tc: it writes a record of each packet into a ring.
//!
//! ```text
//!  packet --> long enough for its link header? --no--> no record
//!         --> TCP or UDP over IP, not to a port of tunnels, or no IP? --> record with few bytes
//!         --> everything else (tunnels, options, fragments, tags)     --> record with many bytes
//!         --> no room in the ring? --> the counter
//!  verdict: the next program (`TCX_NEXT`), whatever happens
//!
//!  record   0 time | 8 length | 12 EtherType | 14 segment | 16 kept | 18 way | 24 bytes ...
//! ```
//!
//! Length and bytes start after the link header. Time is `CLOCK_MONOTONIC`; EtherType is in network
//! byte order; segment is `gso_size`, zero if the packet is a single packet. The program examines
//! the packet's linear part only to choose how many bytes to keep. A function of the kernel makes
//! the copy, because it also reads the non-linear part. The program wakes no process.

use crate::interfaces::assembler::{
    ARGUMENT_1, ARGUMENT_2, ARGUMENT_3, ARGUMENT_4, Assembler, If, Label, RESULT, Width,
};
use crate::sys::bpf::Instruction;

/// Offset of the packet's time in a record.
pub(super) const TIME: i16 = 0;
pub(super) const LENGTH: i16 = 8;
pub(super) const PROTOCOL: i16 = 12;
pub(super) const SEGMENT: i16 = 14;
pub(super) const KEPT: i16 = 16;
pub(super) const WAY: i16 = 18;
/// Offset of the packet's bytes in a record, which is the size of a record without these bytes.
pub(super) const BYTES: i16 = 24;

/// Bytes that are copied from a packet with plain headers: IPv6 and TCP without options.
pub(super) const FEW_BYTES: i16 = 64;
/// Bytes that are copied from a packet that may be a tunnel or has other headers: enough for a
/// tunnel in a tunnel.
pub(super) const MANY_BYTES: i16 = 256;

/// UDP ports of VXLAN (two ports) and Geneve.
const TUNNEL_PORTS: [u16; 3] = [4789, 8472, 6081];

/// Parameters of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorder {
    /// Descriptor of the ring into which the program writes records.
    pub(super) ring: i32,
    /// Descriptor of the counter of packets for which the ring had no free space.
    pub(super) lost: i32,
    /// Length in bytes of the link header of the interface's packets.
    pub(super) link_bytes: u8,
    /// Direction that the program writes into records: 0 for received packets, 1 for sent packets.
    pub(super) way: u8,
    /// Whether [`MANY_BYTES`] are copied from every packet.
    pub(super) whole: bool,
}

/// Register of the program's context. Calls preserve it.
const CONTEXT: u8 = 6;
const RECORD: u8 = 7;
/// Register of the number of bytes after the link header.
const REST: u8 = 8;
/// Register of a value that is compared.
const VALUE: u8 = 4;
/// Register of the packet's start.
const PACKET: u8 = 2;
const END: u8 = 3;

/// Offset of the packet's length in `struct __sk_buff`.
const CONTEXT_LENGTH: i16 = 0;
const CONTEXT_PROTOCOL: i16 = 16;
const CONTEXT_DATA: i16 = 76;
const CONTEXT_END: i16 = 80;
const CONTEXT_SEGMENT: i16 = 176;

/// Number of the kernel's function `bpf_ktime_get_ns`.
const KTIME: i32 = 5;
const LOAD_BYTES: i32 = 26;
const RESERVE: i32 = 131;
const SUBMIT: i32 = 132;
/// Flag of `bpf_ringbuf_submit` (`BPF_RB_NO_WAKEUP`).
const NO_WAKEUP: i32 = 1;
/// Verdict that continues with the next program (`TCX_NEXT`).
pub(super) const NEXT: i32 = -1;

const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;
const TCP: i32 = 6;
const UDP: i32 = 17;

/// Returns the instructions of the program with these parameters.
pub(super) fn assemble(recorder: &Recorder) -> Vec<Instruction> {
    let mut code = Assembler::default();
    let (many, lost, end) = (code.place(), code.place(), code.place());
    let link = i32::from(recorder.link_bytes);
    // r6 = context
    code.copy(CONTEXT, ARGUMENT_1);
    // r8 = context->len - link header; if no bytes are left, there is no packet
    code.load(Width::Word, REST, CONTEXT, CONTEXT_LENGTH);
    code.jump_if(REST, If::AtMost(link), end);
    code.add_value(REST, -link);
    if !recorder.whole {
        choose(&mut code, recorder.link_bytes.into(), many);
        record(&mut code, recorder, FEW_BYTES, lost);
        code.jump(end);
    }
    code.here(many);
    record(&mut code, recorder, MANY_BYTES, lost);
    code.jump(end);
    // *counter += 1
    code.here(lost);
    code.set_map_value(ARGUMENT_1, recorder.lost);
    code.set(ARGUMENT_2, 1);
    code.count_up(ARGUMENT_1, ARGUMENT_2);
    code.here(end);
    code.set(RESULT, NEXT);
    code.leave();
    code.finish()
}

/// Adds instructions that jump to `many`, unless [`FEW_BYTES`] are enough to identify the packet's
/// flow.
fn choose(code: &mut Assembler, link: i16, many: Label) {
    let (few, v6, others) = (code.place(), code.place(), code.place());
    let network = |ethertype: u16| i32::from(ethertype.to_be());
    // r2 = context->data, r3 = context->data_end
    code.load(Width::Word, PACKET, CONTEXT, CONTEXT_DATA);
    code.load(Width::Word, END, CONTEXT, CONTEXT_END);
    code.load(Width::Word, VALUE, CONTEXT, CONTEXT_PROTOCOL);
    code.jump_if(VALUE, If::Equals(network(ETHERTYPE_V6)), v6);
    code.jump_if(VALUE, If::Low32Differs(network(ETHERTYPE_V4).cast_unsigned()), others);

    // IPv4 with a header of five words, followed by TCP or UDP.
    bounds(code, link + 24, many);
    code.load(Width::Byte, VALUE, PACKET, link);
    code.jump_if(VALUE, If::Low32Differs(0x45), many);
    code.load(Width::Byte, VALUE, PACKET, link + 9);
    transport(code, link + 22, few, many);

    // IPv6, followed by TCP or UDP.
    code.here(v6);
    bounds(code, link + 44, many);
    code.load(Width::Byte, VALUE, PACKET, link + 6);
    transport(code, link + 42, few, many);

    // After VLAN tags any protocol may follow.
    code.here(others);
    for tag in [0x8100, 0x88a8] {
        code.jump_if(VALUE, If::Equals(network(tag)), many);
    }
    code.here(few);
}

/// Adds instructions that jump to `many`, if the packet's linear part has fewer than `bytes`.
fn bounds(code: &mut Assembler, bytes: i16, many: Label) {
    // r4 = data + bytes
    code.copy(VALUE, PACKET);
    code.add_value(VALUE, i32::from(bytes));
    code.jump_if(VALUE, If::AboveRegister(END), many);
}

/// Adds instructions that jump to `few`, if the protocol in the register `VALUE` is TCP, or UDP to
/// a port that is not a tunnel's, and otherwise to `many`.
fn transport(code: &mut Assembler, port: i16, few: Label, many: Label) {
    code.jump_if(VALUE, If::Equals(TCP), few);
    code.jump_if(VALUE, If::Low32Differs(UDP.cast_unsigned()), many);
    code.load(Width::Half, VALUE, PACKET, port);
    for tunnel in TUNNEL_PORTS {
        code.jump_if(VALUE, If::Equals(i32::from(tunnel.to_be())), many);
    }
    code.jump(few);
}

/// Adds instructions that write a record with up to `bytes` of the packet, or jump to `lost`, if
/// the ring has no free space.
fn record(code: &mut Assembler, recorder: &Recorder, bytes: i16, lost: Label) {
    let whole = code.place();
    let copied = code.place();
    // r7 = bpf_ringbuf_reserve(ring, size, 0)
    code.set_map(ARGUMENT_1, recorder.ring);
    code.set(ARGUMENT_2, i32::from(BYTES + bytes));
    code.set(ARGUMENT_3, 0);
    code.call(RESERVE);
    code.jump_if(RESULT, If::Equals(0), lost);
    code.copy(RECORD, RESULT);
    // The time is read after the space is reserved. So a reader that has reached the end of the
    // ring at some time has read every record with an earlier time.
    code.call(KTIME);
    code.store(Width::Double, RECORD, TIME, RESULT);
    code.store(Width::Word, RECORD, LENGTH, REST);
    code.load(Width::Word, VALUE, CONTEXT, CONTEXT_PROTOCOL);
    code.store(Width::Half, RECORD, PROTOCOL, VALUE);
    code.load(Width::Word, VALUE, CONTEXT, CONTEXT_SEGMENT);
    code.store(Width::Half, RECORD, SEGMENT, VALUE);
    code.store_value(Width::Byte, RECORD, WAY, recorder.way.into());
    // r4 = min(r8, bytes)
    code.copy(ARGUMENT_4, REST);
    code.jump_if(ARGUMENT_4, If::AtMost(bytes.into()), whole);
    code.set(ARGUMENT_4, bytes.into());
    code.here(whole);
    code.store(Width::Half, RECORD, KEPT, ARGUMENT_4);
    // bpf_skb_load_bytes(context, link header, record's bytes, r4)
    code.copy(ARGUMENT_1, CONTEXT);
    code.set(ARGUMENT_2, recorder.link_bytes.into());
    code.copy(ARGUMENT_3, RECORD);
    code.add_value(ARGUMENT_3, BYTES.into());
    code.call(LOAD_BYTES);
    code.jump_if(RESULT, If::Equals(0), copied);
    code.store_value(Width::Half, RECORD, KEPT, 0);
    code.here(copied);
    // bpf_ringbuf_submit(r7, no wake-up)
    code.copy(ARGUMENT_1, RECORD);
    code.set(ARGUMENT_2, NO_WAKEUP);
    code.call(SUBMIT);
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
