//! A segment of the TCP model as a frame (the bytes that a guest passes to its network interface),
//! and the parser of such frames.
//!
//! ```text
//! +----------------+---------+-------------------------------------+--------+-----------------+
//! | offload, 10    | IPv4 20 | option 12: 158, 12, flags, 0,       | TCP 20 | timestamps 12,  |
//! | (virtio-net)   |         | flow 4, upper half of seq or ack 4  |        | SACK 0 to 28    |
//! +----------------+---------+-------------------------------------+--------+-----------------+
//! ```
//!
//! Every field that a card may read or change is in its standard position. The fields that exist
//! only in the model (its flow numbers, offsets beyond 32 bits, the flags that open a connection)
//! are in an IPv4 option with a number for experiments (RFC 4727). Timestamps are in microseconds,
//! which Linux also supports.
//!
//! The payload is a pattern that follows from flow and offset. So a receiver can check that it
//! received the sent bytes.

use srd_card::checksum;
use srd_card::offload::{Gso, Header, OFFLOAD_BYTES, Offload};
use srd_card::packet::{Packet as IpPacket, protocol};
use srd_proto::Instant;
use srd_proto::transmit::Ecn;

use crate::engine::hash::mix;
use crate::engine::nic::{host_at, inner_address};
use crate::engine::node::HostId;
use crate::machines::pattern;
use crate::machines::tcp::TcpSegment;
use crate::machines::tcp::segment::{
    FLAG_ACK, FLAG_CWR, FLAG_DSACK, FLAG_ECE, FLAG_PSH, FLAG_RESUMED, FLAG_RST, FLAG_SYN,
};

/// Length of the headers of a data segment: IPv4 with the model's option, TCP with timestamps.
pub const HEADER_BYTES: u32 = 64;

const IP_BYTES: usize = 32;
const TCP_AT: usize = IP_BYTES;
const OPTION: u8 = 158;
const OPTION_BYTES: u8 = 12;
/// Length of the TCP header with the timestamp option.
const TCP_BYTES: usize = 32;

/// Flags of the model that exist in the TCP header, each with its bit in that header.
const IN_TCP: [(u8, u8); 5] =
    [(FLAG_ACK, 0x10), (FLAG_PSH, 0x08), (FLAG_RST, 0x04), (FLAG_ECE, 0x40), (FLAG_CWR, 0x80)];
/// Flags that exist only in the TCP model.
const IN_OPTION: u8 = FLAG_SYN | FLAG_DSACK | FLAG_RESUMED;

/// A segment of the TCP model with the addresses and ports of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Framed {
    /// Host that sent the segment.
    pub src: HostId,
    /// Host that receives the segment.
    pub dst: HostId,
    /// Source port and destination port.
    pub ports: (u16, u16),
    /// ECN field of the IP header.
    pub ecn: Ecn,
    /// The segment. If it is longer than `mss_bytes`, it represents several segments (a
    /// super-packet).
    pub segment: TcpSegment,
}

/// A frame as the guest received and parsed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Segment that the frame contains.
    pub framed: Framed,
    /// Whether the payload equals the sent bytes.
    pub is_intact: bool,
}

/// Returns the frame of a segment. If the segment has more than `mss_bytes` of payload, the frame
/// requests the card to divide it.
pub fn write(framed: &Framed, mss_bytes: u32) -> Vec<u8> {
    let segment = &framed.segment;
    let sack_bytes = sack_bytes(segment);
    let headers = TCP_AT + TCP_BYTES + sack_bytes;
    let bytes = headers + segment.payload_bytes as usize;
    let mut frame = vec![0; OFFLOAD_BYTES + bytes];
    let gso = (segment.payload_bytes > mss_bytes).then(|| {
        let step = u16::try_from(mss_bytes).expect("a packet is below 64 KiB");
        (Gso::Tcp { ecn: segment.has(FLAG_CWR) }, step)
    });
    let checksum = Some((32, 16));
    let offload = Offload { gso, checksum, checked: false }.write(true, headers);
    frame[..OFFLOAD_BYTES].copy_from_slice(&offload);
    let packet = &mut frame[OFFLOAD_BYTES..];
    write_ip(packet, framed);
    write_tcp(packet, framed, headers);
    write_sack(&mut packet[TCP_AT + TCP_BYTES..headers], segment);
    fill(segment, &mut packet[headers..]);
    frame
}

/// Returns the length of the SACK option with its padding.
fn sack_bytes(segment: &TcpSegment) -> usize {
    match usize::from(segment.sack_count) {
        0 => 0,
        blocks => 4 + 8 * blocks,
    }
}

fn write_ip(packet: &mut [u8], framed: &Framed) {
    let segment = &framed.segment;
    let total = u16::try_from(packet.len()).expect("a frame is below 64 KiB");
    packet[0] = 0x48;
    packet[1] = match framed.ecn {
        Ecn::NotEct => 0,
        Ecn::Ect => 2,
        Ecn::Ce => 3,
    };
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = protocol::TCP;
    packet[12..16].copy_from_slice(&inner_address(framed.src).octets());
    packet[16..20].copy_from_slice(&inner_address(framed.dst).octets());
    packet[20..23].copy_from_slice(&[OPTION, OPTION_BYTES, segment.flags & IN_OPTION]);
    packet[24..28].copy_from_slice(&segment.flow.to_be_bytes());
    packet[28..32].copy_from_slice(&upper(offset(segment)).to_be_bytes());
    let sum = checksum::of(&packet[..IP_BYTES]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the offset of a segment's data in the stream, or the acknowledged offset if the segment
/// has no data.
fn offset(segment: &TcpSegment) -> u64 {
    if segment.payload_bytes > 0 { segment.seq } else { segment.ack }
}

#[allow(clippy::cast_possible_truncation)] // the halves of the number
fn upper(offset: u64) -> u32 {
    (offset >> 32) as u32
}

#[allow(clippy::cast_possible_truncation)] // the halves of the number
fn lower(offset: u64) -> u32 {
    offset as u32
}

fn write_tcp(packet: &mut [u8], framed: &Framed, headers: usize) {
    let segment = &framed.segment;
    let length = packet.len() - TCP_AT;
    let tcp = &mut packet[TCP_AT..headers];
    tcp[0..2].copy_from_slice(&framed.ports.0.to_be_bytes());
    tcp[2..4].copy_from_slice(&framed.ports.1.to_be_bytes());
    tcp[4..8].copy_from_slice(&lower(segment.seq).to_be_bytes());
    tcp[8..12].copy_from_slice(&lower(segment.ack).to_be_bytes());
    let words = u8::try_from((headers - TCP_AT) / 4).expect("at most fifteen");
    tcp[12] = words << 4;
    let given = IN_TCP.iter().filter(|(flag, _)| segment.has(*flag));
    tcp[13] = given.fold(0, |bits, (_, bit)| bits | bit);
    tcp[14..16].copy_from_slice(&[0xff; 2]);
    let [source, destination] = [framed.src, framed.dst].map(|host| inner_address(host).octets());
    let addresses = [source, destination].concat();
    // The field contains the sum of the pseudo-header only; the card completes it.
    let sum = checksum::pseudo_header(&addresses, protocol::TCP, length);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);
    tcp[24..28].copy_from_slice(&lower(segment.timestamp_ns / 1000).to_be_bytes());
    tcp[28..32].copy_from_slice(&lower(segment.timestamp_echo_ns / 1000).to_be_bytes());
}

fn write_sack(option: &mut [u8], segment: &TcpSegment) {
    let Some((head, blocks)) = option.split_first_chunk_mut::<4>() else { return };
    *head = [1, 1, 5, 2 + 8 * segment.sack_count];
    for (range, to) in segment.sack_blocks().zip(blocks.chunks_exact_mut(8)) {
        to[..4].copy_from_slice(&lower(range.start).to_be_bytes());
        to[4..].copy_from_slice(&lower(range.end).to_be_bytes());
    }
}

/// Returns the position in the pattern at which the content of a segment begins.
fn content_at(segment: &TcpSegment) -> u64 {
    mix(segment.flow.into()).wrapping_add(segment.seq)
}

/// Writes the content of a segment, which follows from its flow and offset.
fn fill(segment: &TcpSegment, payload: &mut [u8]) {
    let mut rest = payload;
    for piece in pattern::pieces(content_at(segment), rest.len()) {
        let (now, later) = rest.split_at_mut(piece.len());
        now.copy_from_slice(piece);
        rest = later;
    }
}

/// Parses a frame. Returns `None` if a guest's kernel would drop the frame.
pub fn read(now: Instant, frame: &[u8]) -> Option<Arrived> {
    let (header, bytes) = frame.split_first_chunk::<OFFLOAD_BYTES>()?;
    let ip = IpPacket::read(bytes)?;
    let offload = Header::decode(header);
    let headers = TCP_AT + ip.tcp_header_bytes(bytes)?;
    let is_sound = ip.transport_at == TCP_AT
        && bytes[20] == OPTION
        && checksum::of(&bytes[..IP_BYTES]) == 0
        && u16::from_be_bytes([bytes[2], bytes[3]]) == u16::try_from(bytes.len()).ok()?
        && headers >= TCP_AT + TCP_BYTES
        && has_checksum(&offload, bytes);
    if !is_sound {
        return None;
    }
    let (option, tcp) = (&bytes[20..IP_BYTES], &bytes[TCP_AT..headers]);
    let set = IN_TCP.iter().filter(|(_, bit)| tcp[13] & bit != 0);
    let payload = &bytes[headers..];
    let high = u64::from(word(option, 8)) << 32;
    let is_data = !payload.is_empty();
    let mut segment = TcpSegment {
        seq: if is_data { high | u64::from(word(tcp, 4)) } else { 0 },
        ack: if is_data { 0 } else { high | u64::from(word(tcp, 8)) },
        timestamp_ns: timestamp_ns(now, word(tcp, 24)),
        timestamp_echo_ns: timestamp_ns(now, word(tcp, 28)),
        flow: word(option, 4),
        payload_bytes: u32::try_from(payload.len()).ok()?,
        flags: set.fold(option[2] & IN_OPTION, |flags, (flag, _)| flags | flag),
        ..TcpSegment::default()
    };
    read_sack(&tcp[TCP_BYTES..], &mut segment);
    let framed = Framed {
        src: host_at(ip.source)?,
        dst: host_at(ip.destination)?,
        ports: ip.ports?,
        ecn: match bytes[1] & 3 {
            0 => Ecn::NotEct,
            3 => Ecn::Ce,
            _ => Ecn::Ect,
        },
        segment,
    };
    Some(Arrived { framed, is_intact: pattern::is_at(content_at(&segment), payload) })
}

/// Whether the TCP checksum is correct, or contains the sum of the pseudo-header for the receiver
/// to complete.
fn has_checksum(offload: &Header, bytes: &[u8]) -> bool {
    let (addresses, tcp) = (&bytes[12..20], &bytes[TCP_AT..]);
    if offload.checksum.is_none() {
        return checksum::transport(addresses, protocol::TCP, tcp) == 0;
    }
    let sum = checksum::pseudo_header(addresses, protocol::TCP, tcp.len());
    tcp[16..18] == sum.to_be_bytes()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the latest time in nanoseconds, up to `now`, that a timestamp of 32 bits in microseconds
/// can stand for. A timestamp of zero means that there is no timestamp.
fn timestamp_ns(now: Instant, timestamp: u32) -> u64 {
    if timestamp == 0 {
        return 0;
    }
    let now_us = now.as_nanos() / 1000;
    let ago = lower(now_us).wrapping_sub(timestamp);
    now_us.saturating_sub(ago.into()) * 1000
}

fn read_sack(options: &[u8], segment: &mut TcpSegment) {
    let Some((_, blocks)) = options.split_first_chunk::<4>() else { return };
    let ack = lower(segment.ack);
    for (block, to) in blocks.chunks_exact(8).zip(&mut segment.sack) {
        let (start, end) = (word(block, 0), word(block, 4));
        *to = (start.wrapping_sub(ack).cast_signed(), end.wrapping_sub(start));
        segment.sack_count += 1;
    }
}
