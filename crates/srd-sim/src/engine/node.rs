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

/// Number of a host, from zero, as in the connection-matrix files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct HostId(pub u32);

/// Number of a flow, from zero, in the order of the workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct FlowId(pub u32);

impl HostId {
    /// Returns the host's number as an index of a list.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl FlowId {
    /// Returns the flow's number as an index of a list.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Flow size of an endless flow, which sends until the end of the run.
pub const ENDLESS: u64 = u64::MAX;

/// A flow that a node has to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSpec {
    /// Number of the flow, to which outcomes refer.
    pub id: FlowId,
    /// Host that sends the flow.
    pub src: HostId,
    /// Host that receives the flow.
    pub dst: HostId,
    /// Application bytes of the flow, or [`ENDLESS`].
    pub bytes: u64,
}

/// The IP protocol number of UDP, which SRD and background traffic use.
pub const PROTOCOL_UDP: u8 = 17;
/// The IP protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;

/// Largest number of bytes of an SRD packet's head (header and control data) that are stored inside
/// the packet slot. A longer head is stored in memory of its own.
pub const HEAD_INLINE_BYTES: usize = 40;

/// One packet in the simulated network. The switches read only the outer 5-tuple, the size and the
/// ECN field.
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
    /// The IP protocol number of the packet.
    pub protocol: u8,
    /// The ECN field, as the sender set it. On arrival it contains the marks of switches.
    pub ecn: Ecn,
    /// Whether the sender classes the packet as control (acknowledgement, probe). Ports with a
    /// control class send such packets first.
    pub control: bool,
    /// Whether a switch cut the payload off because its queue was full.
    pub trimmed: bool,
    /// Whether a link flipped bits of the packet. Set only if the world models a checksum that
    /// misses the error; otherwise the receiving host's NIC drops the packet.
    pub corrupted: bool,
    /// Content of the packet.
    pub body: Body,
}

/// Content of a packet.
#[derive(Clone, Debug, Default)]
pub enum Body {
    /// No packet: the slot is empty.
    #[default]
    Empty,
    /// A packet of the production SRD endpoint, as bytes.
    Srd(SrdBody),
    /// A segment of the TCP model.
    Tcp(TcpSegment),
    /// A packet of the RoCE model.
    Roce(RocePacket),
    /// A packet of background load, with a size but without content. The value is the number of the
    /// load's source.
    Background(FlowId),
}

/// Bytes of an SRD packet: a head, which is a copy, and a payload by reference.
#[derive(Clone, Debug)]
pub struct SrdBody {
    head_inline: [u8; HEAD_INLINE_BYTES],
    head_bytes: u16,
    // The allocation stays when the slot is reused. So long heads (acknowledgements with bitmaps,
    // encrypted packets) allocate memory once for each slot.
    spill: Option<Box<[u8]>>,
    /// The payload of the packet; empty for control packets.
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

    /// Returns the head of the packet.
    pub fn head(&self) -> &[u8] {
        let len = usize::from(self.head_bytes);
        match (&self.spill, self.head_inline.get(..len)) {
            (_, Some(inline)) => inline,
            (Some(spill), None) => &spill[..len],
            (None, None) => unreachable!("a long head is in the spill"),
        }
    }

    /// Returns the head of the packet for changes in place (decryption, bit flips).
    pub fn head_mut(&mut self) -> &mut [u8] {
        let len = usize::from(self.head_bytes);
        if len <= HEAD_INLINE_BYTES {
            return &mut self.head_inline[..len];
        }
        let spill = self.spill.as_mut().expect("a long head is in the spill");
        &mut spill[..len]
    }

    /// Returns head and payload of the packet.
    pub fn parts(&self) -> (&[u8], &[u8]) {
        (self.head(), &self.payload)
    }
}

impl Packet {
    /// Creates an empty packet slot.
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

    /// Reads one field of each cache line of the packet, so that the packet is in the cache. The
    /// returned number has no meaning.
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

/// Reports of a node, other than packets. The world removes them after every call of the node.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Flows of which the sender has all acknowledgements, or which it has ended after a failure.
    pub completed: Vec<FlowId>,
    /// Application data that arrived: one entry for each time a piece is passed to the application.
    pub delivered: Vec<Delivered>,
    /// Parts of flows that the transport has given up.
    pub failed: Vec<Failed>,
}

/// A piece of application data that has reached its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// Flow to which the piece belongs.
    pub flow: FlowId,
    /// Index of the datagram in the flow, or byte offset in a stream.
    pub index: u64,
    /// Length of the piece in bytes.
    pub bytes: u32,
    /// Whether the content equals the sent bytes. True if the node does not compare the bytes.
    pub intact: bool,
}

/// A part of a flow that the sending transport has given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// Flow to which the part belongs.
    pub flow: FlowId,
    /// Index of the part within the flow.
    pub index: u64,
    /// Status number of the failure, as the transport defines it.
    pub status: u8,
}

impl Outcomes {
    /// Whether there is no completion, no delivery and no failure.
    pub fn is_empty(&self) -> bool {
        self.completed.is_empty() && self.delivered.is_empty() && self.failed.is_empty()
    }
}

/// A machine on the network: a transport with its senders and receivers.
///
/// The time `now` never decreases from call to call. After any of `start_flow`, `on_packet` and
/// `on_timer`, and whenever the host's link becomes free, the world calls `poll_packet` until it
/// returns false or the link is busy. The world then reads `next_timer`.
pub trait Node {
    /// Starts to send a flow from this host.
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, out: &mut Outcomes);

    /// Processes an arrived packet. The node may modify the packet, because its slot is reused
    /// afterwards.
    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes);

    /// Processes the deadline that `next_timer` returned.
    fn on_timer(&mut self, now: Instant, out: &mut Outcomes);

    /// Returns the time when `on_timer` has to be called next, or `None`. The time may be too
    /// early, but never too late. After `on_timer(now)` and after `poll_packet` has returned false,
    /// it must be later than `now`.
    fn next_timer(&self) -> Option<Instant>;

    /// Fills every field of `slot` with the next packet and returns true, or returns false if there
    /// is no packet. The world calls this only while the link is free.
    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool;

    /// Fills `slot` as [`Self::poll_packet`] does, while the host's link is paused (priority flow
    /// control). Only packets of a class that pause frames do not stop are permitted.
    fn poll_unpaused(&mut self, _now: Instant, _slot: &mut Packet) -> bool {
        false
    }

    /// Reads the data that `on_packet` will need for this packet, and changes nothing. The returned
    /// number has no meaning. The world calls this function for several nodes in a row before it
    /// passes their packets to them. So the memory accesses overlap.
    fn warm_for_packet(&self, packet: &Packet) -> u64 {
        packet.warm()
    }

    /// Reads the data that `poll_packet` will need, in the manner of [`Self::warm_for_packet`].
    fn warm_for_poll(&self) -> u64 {
        0
    }

    /// Restarts the machine after a crash, without any state. Reports the unfinished flows of the
    /// host as failed.
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
