//! The seam between the simulated network and the machines on it: packets, flows, the
//! [`Node`] trait and what nodes report.
//!
//! The network calls a node when a packet or a deadline is due, and asks it for a packet
//! whenever the host's link is free ([`Node::poll_packet`]): a pull, so that no queue builds
//! up inside a host and a transport decides as late as real hardware would. Packets live in
//! the world's slab; a node fills a slot in place and reads an arrived one in place.

use bytes::Bytes;
use srd_proto::time::Instant;
use srd_proto::transmit::Ecn;

use crate::roce::packet::RocePacket;
use crate::tcp::TcpSegment;

/// A host, numbered from zero as in the connection-matrix files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct HostId(pub u32);

/// A flow of the workload, numbered from zero in the order of the workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct FlowId(pub u32);

impl HostId {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl FlowId {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A flow size that means "until the horizon".
pub const ENDLESS: u64 = u64::MAX;

/// What a node is asked to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSpec {
    /// Its number, which outcomes refer to.
    pub id: FlowId,
    /// The sender.
    pub src: HostId,
    /// The receiver.
    pub dst: HostId,
    /// Application bytes, or [`ENDLESS`].
    pub bytes: u64,
}

/// The IP protocol number of UDP, which SRD and background traffic use.
pub const PROTOCOL_UDP: u8 = 17;
/// The IP protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;

/// Bytes of an SRD packet's head that are stored inside the packet slot.
pub const HEAD_INLINE_BYTES: usize = 40;

/// One packet. The switches read only the outer 5-tuple, the size and the ECN field.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The sending host: the outer source address.
    pub src: HostId,
    /// The receiving host: the outer destination address.
    pub dst: HostId,
    /// Bytes that the packet occupies on a link and in a queue.
    pub wire_bytes: u32,
    /// The outer source port, which carries the entropy.
    pub src_port: u16,
    /// The outer destination port.
    pub dst_port: u16,
    /// The IP protocol number.
    pub protocol: u8,
    /// The ECN field, as sent; as received once it arrives.
    pub ecn: Ecn,
    /// Whether the sender classes it as control (acknowledgement, probe), which ports with a
    /// control class send first.
    pub control: bool,
    /// Whether a switch cut the payload off for want of room.
    pub trimmed: bool,
    /// Whether bits were flipped on the way. Set only for bodies that carry no bytes to flip
    /// or when the world models an undetecting checksum; otherwise the host's NIC drops it.
    pub corrupted: bool,
    /// What it carries.
    pub body: Body,
}

/// What a packet carries.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// A slot that nobody filled.
    #[default]
    Empty,
    /// A packet of the SRD core, as bytes.
    Srd(SrdBody),
    /// A segment of the TCP model.
    Tcp(TcpSegment),
    /// A packet of RoCE.
    Roce(RocePacket),
    /// Nothing but size: background load, and the engine's own test node.
    Background(FlowId),
}

/// The bytes of an SRD packet: a head and a payload by reference.
#[derive(Clone, Debug)]
pub struct SrdBody {
    head_inline: [u8; HEAD_INLINE_BYTES],
    head_bytes: u16,
    // Kept when the slot is reused, so that long heads (acknowledgements with bitmaps, sealed
    // packets) allocate once per slot.
    spill: Option<Box<[u8]>>,
    /// The payload; it may be empty.
    pub payload: Bytes,
}

impl Default for SrdBody {
    fn default() -> Self {
        let head_inline = [0; HEAD_INLINE_BYTES];
        Self { head_inline, head_bytes: 0, spill: None, payload: Bytes::new() }
    }
}

impl SrdBody {
    /// Copies the head in.
    pub fn set_head(&mut self, head: &[u8]) {
        self.head_bytes = u16::try_from(head.len()).expect("a head is below 64 KiB");
        if let Some(inline) = self.head_inline.get_mut(..head.len()) {
            inline.copy_from_slice(head);
            return;
        }
        match &mut self.spill {
            Some(spill) if spill.len() >= head.len() => spill[..head.len()].copy_from_slice(head),
            spill => *spill = Some(head.into()),
        }
    }

    /// The head.
    pub fn head(&self) -> &[u8] {
        let len = usize::from(self.head_bytes);
        match (&self.spill, self.head_inline.get(..len)) {
            (_, Some(inline)) => inline,
            (Some(spill), None) => &spill[..len],
            (None, None) => unreachable!("a long head is in the spill"),
        }
    }

    /// The head, to be changed in place (decryption, bit flips).
    pub fn head_mut(&mut self) -> &mut [u8] {
        let len = usize::from(self.head_bytes);
        if len <= HEAD_INLINE_BYTES {
            return &mut self.head_inline[..len];
        }
        let spill = self.spill.as_mut().expect("a long head is in the spill");
        &mut spill[..len]
    }

    /// Head and payload at once.
    pub fn parts(&self) -> (&[u8], &[u8]) {
        (self.head(), &self.payload)
    }
}

impl Packet {
    /// A slot that nobody filled.
    pub const fn empty() -> Self {
        Self {
            src: HostId(0),
            dst: HostId(0),
            wire_bytes: 0,
            src_port: 0,
            dst_port: 0,
            protocol: 0,
            ecn: Ecn::NotEct,
            control: false,
            trimmed: false,
            corrupted: false,
            body: Body::Empty,
        }
    }

    /// Reads one field of each of its cache lines.
    #[inline]
    pub fn warm(&self) -> u64 {
        let tail = match &self.body {
            Body::Srd(body) => body.payload.len() as u64,
            Body::Tcp(segment) => segment.payload_bytes.into(),
            _ => 0,
        };
        tail ^ u64::from(self.wire_bytes)
    }

    /// Lets go of what the packet refers to, keeping the slot's own memory.
    #[inline]
    pub fn release(&mut self) {
        if let Body::Srd(body) = &mut self.body {
            body.payload = Bytes::new();
        }
    }

    /// Makes this an SRD packet with the given bytes, reusing the slot's memory.
    pub fn set_srd(&mut self, head: &[u8], payload: Bytes) {
        if !matches!(self.body, Body::Srd(_)) {
            self.body = Body::Srd(SrdBody::default());
        }
        if let Body::Srd(body) = &mut self.body {
            body.set_head(head);
            body.payload = payload;
        }
    }
}

/// What a node reports beside packets. The world drains it after every call.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Flows whose sender now holds the acknowledgement of every byte.
    pub completed: Vec<FlowId>,
    /// Application data that arrived, each piece once per delivery to the application.
    pub delivered: Vec<Delivered>,
    /// Parts of flows that the transport gave up on.
    pub failed: Vec<Failed>,
    /// Packets handed to the network again after the transport took them for lost.
    pub retransmitted_packets: u64,
}

/// One piece of application data at its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// The flow it belongs to.
    pub flow: FlowId,
    /// Which piece: the datagram's index, or the byte offset of a stream.
    pub index: u64,
    /// How long it is.
    pub bytes: u32,
    /// Whether its content is what was sent, as far as the node checked.
    pub intact: bool,
}

/// A part of a flow that will never be delivered, as far as its sender knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// The flow it belongs to.
    pub flow: FlowId,
    /// Which piece.
    pub index: u64,
    /// The transport's status number.
    pub status: u8,
}

impl Outcomes {
    /// Whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.completed.is_empty() && self.delivered.is_empty() && self.failed.is_empty()
    }
}

/// A machine on the network: a transport with its senders and receivers.
///
/// Calls come with a clock that never runs backwards. After any of `start_flow`, `on_packet`
/// and `on_timer`, and whenever the host's link becomes free, the world calls `poll_packet`
/// until it returns false or the link is busy, and reads `next_timer`.
pub trait Node {
    /// A flow of this host begins.
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, out: &mut Outcomes);

    /// A packet arrived. It may be consumed in place; its slot is recycled afterwards.
    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes);

    /// The deadline that `next_timer` named has come.
    fn on_timer(&mut self, now: Instant, out: &mut Outcomes);

    /// When `on_timer` is next due: it may be early, never late. After `on_timer(now)` and a
    /// drain of `poll_packet`, it is later than `now`.
    fn next_timer(&self) -> Option<Instant>;

    /// The link is free: fills `slot` with the next packet, every field of it, and returns
    /// true, or returns false.
    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool;

    /// The same while the host's link is paused (priority flow control): only packets of a class
    /// that pauses do not stop.
    fn poll_unpaused(&mut self, _now: Instant, _slot: &mut Packet) -> bool {
        false
    }

    /// Reads, and only reads, what `on_packet` will need for this packet, and returns any
    /// number made of it. Called for several nodes in a row before their packets are handed
    /// over, so that the memory's latencies overlap.
    fn warm_for_packet(&self, packet: &Packet) -> u64 {
        packet.warm()
    }

    /// The same for `poll_packet`.
    fn warm_for_poll(&self) -> u64 {
        0
    }

    /// The machine crashed and came back: everything it knew is lost. Its unfinished flows
    /// are reported as failed.
    fn restart(&mut self, now: Instant, out: &mut Outcomes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_fits_two_cache_lines() {
        assert!(size_of::<Packet>() <= 128, "{}", size_of::<Packet>());
    }

    #[test]
    fn head_survives_short_long_and_short_again() {
        let mut packet = Packet::empty();
        for len in [10_usize, 40, 41, 300, 36, 200, 1000] {
            let head: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
            packet.set_srd(&head, Bytes::from_static(b"payload"));
            let Body::Srd(body) = &mut packet.body else { panic!("an SRD body") };
            assert_eq!(body.parts(), (&head[..], &b"payload"[..]));
            assert_eq!(body.head_mut(), &head[..]);
        }
    }
}
