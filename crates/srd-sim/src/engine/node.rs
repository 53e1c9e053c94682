//! Interface between the simulated network and the machines on it: packets, flows, the [`Node`]
//! trait and the outcomes that nodes report.
//!
//! The network calls a node when a packet or a deadline is due, and polls it for a packet whenever
//! the host's link is free ([`Node::poll_packet`]). So no queue builds up inside a host, and a
//! transport decides as late as with real hardware. Packets are in the world's slab; a node fills a
//! slot in place and reads an arrived packet in place.

use bytes::Bytes;
use srd_proto::time::Instant;
use srd_proto::transmit::Ecn;

use crate::machines::roce::packet::RocePacket;
use crate::machines::tcp::TcpSegment;

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

/// Flow size that means "until the horizon".
pub const ENDLESS: u64 = u64::MAX;

/// A flow that a node has to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSpec {
    /// Number of the flow, to which outcomes refer.
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
    /// The ECN field: as sent, and after arrival as received.
    pub ecn: Ecn,
    /// Whether the sender classes the packet as control (acknowledgement, probe). Ports with a
    /// control class send such packets first.
    pub control: bool,
    /// Whether a switch cut the payload off because its queue was full.
    pub trimmed: bool,
    /// Whether bits were flipped on the way. Set only if the body carries no bytes to flip, or if
    /// the world models a checksum that misses the error; otherwise the host's NIC drops the
    /// packet.
    pub corrupted: bool,
    /// Content of the packet.
    pub body: Body,
}

/// Content of a packet.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// An empty slot.
    #[default]
    Empty,
    /// A packet of the SRD core, as bytes.
    Srd(SrdBody),
    /// A segment of the TCP model.
    Tcp(TcpSegment),
    /// A packet of RoCE.
    Roce(RocePacket),
    /// No content, only a size: background load, and the engine's test node.
    Background(FlowId),
}

/// Bytes of an SRD packet: a head, and a payload by reference.
#[derive(Clone, Debug)]
pub struct SrdBody {
    head_inline: [u8; HEAD_INLINE_BYTES],
    head_bytes: u16,
    // The allocation stays when the slot is reused, so that long heads (acknowledgements with
    // bitmaps, sealed packets) allocate once for each slot.
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
    /// Copies a head into the packet.
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

    /// The head, for changes in place (decryption, bit flips).
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
    /// Creates an empty slot.
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

    /// Reads one field of each cache line of the packet.
    #[inline]
    pub fn warm(&self) -> u64 {
        let tail = match &self.body {
            Body::Srd(body) => body.payload.len() as u64,
            Body::Tcp(segment) => segment.payload_bytes.into(),
            _ => 0,
        };
        tail ^ u64::from(self.wire_bytes)
    }

    /// Releases the payload of the packet, and keeps the slot's own memory.
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

/// Reports of a node, apart from packets. The world drains them after every call.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Flows of which every byte is acknowledged.
    pub completed: Vec<FlowId>,
    /// Application data that arrived, each piece once per delivery to the application.
    pub delivered: Vec<Delivered>,
    /// Parts of flows that the transport has given up.
    pub failed: Vec<Failed>,
    /// Packets that the transport sent again because it took them for lost.
    pub retransmitted_packets: u64,
}

/// A piece of application data at its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// Flow of the piece.
    pub flow: FlowId,
    /// Index of the datagram, or byte offset in a stream.
    pub index: u64,
    /// Length of the piece.
    pub bytes: u32,
    /// Whether the content equals the sent bytes, as far as the node checked.
    pub intact: bool,
}

/// A part of a flow that its sender has given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// Flow of the part.
    pub flow: FlowId,
    /// Index of the part.
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
    /// Starts a flow of this host.
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, out: &mut Outcomes);

    /// Processes an arrived packet. It may be consumed in place; its slot is recycled afterwards.
    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes);

    /// Processes the deadline of `next_timer`.
    fn on_timer(&mut self, now: Instant, out: &mut Outcomes);

    /// Time when `on_timer` is next due: it may be early, never late. After `on_timer(now)` and a
    /// drain of `poll_packet`, it is later than `now`.
    fn next_timer(&self) -> Option<Instant>;

    /// Fills every field of `slot` with the next packet and returns true, or returns false if there
    /// is no packet. The link is free.
    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool;

    /// Fills `slot` while the host's link is paused (priority flow control), as
    /// [`Self::poll_packet`] does: only with packets of a class that pauses do not stop.
    fn poll_unpaused(&mut self, _now: Instant, _slot: &mut Packet) -> bool {
        false
    }

    /// Reads the data that `on_packet` will need for this packet, changes nothing, and returns any
    /// number computed from it. The world calls this for several nodes in a row before it hands
    /// over their packets, so that the latencies of memory overlap.
    fn warm_for_packet(&self, packet: &Packet) -> u64 {
        packet.warm()
    }

    /// Reads the data that `poll_packet` will need, as [`Self::warm_for_packet`] does.
    fn warm_for_poll(&self) -> u64 {
        0
    }

    /// Restarts the machine after a crash, without any state. Its unfinished flows are reported as
    /// failed.
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
