//! Reads frames from buffers of a ring, and writes frames to them.
//!
//! In a buffer a frame follows the header of virtio-net (VIRTIO 1.2, section 5.1.6). The header has
//! ten bytes and, with `VERSION_1` or `MRG_RXBUF`, the number of buffers that the frame occupies.
//! With `MRG_RXBUF`, a frame that does not fit into one buffer continues in the next buffers.

use vm_memory::VolatileMemory;

use crate::memory::Memory;
use crate::ring::{Access, Broken, Piece, Ring};

/// Bytes of virtio-net's header without the number of buffers.
pub const HEADER_BYTES: usize = 10;
/// Bytes of an Ethernet header.
pub const ETHERNET_BYTES: usize = 14;
/// Length of the longest packet in bytes: a super-packet of 64 KB.
pub const PACKET_BYTES_MAX: usize = 65_535;
/// Largest number of buffers of one frame.
const BUFFERS_MAX: usize = 128;

/// Working memory, kept between frames to avoid allocations.
#[derive(Debug, Default)]
pub struct Scratch {
    pieces: Vec<Piece>,
    /// Heads of chains, each with the number of bytes of the frame that go into the chain.
    heads: Vec<(u16, u32)>,
}

/// An Ethernet frame with its offload header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// Ethernet header of the frame.
    pub ethernet: [u8; ETHERNET_BYTES],
    /// Offload header of [`HEADER_BYTES`] bytes, in which offsets count from the Ethernet header.
    /// The content of the frame after its Ethernet header follows.
    pub packet: Vec<u8>,
}

/// Result of taking the next chain of a ring that a device reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// No chain was available.
    Nothing,
    /// The chain held a frame.
    Frame,
    /// The chain was malformed, or held no frame.
    Malformed,
}

/// Result of putting a frame into a ring that a device writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The frame was written.
    Done,
    /// The driver has no buffers in the ring.
    Full,
    /// The frame is longer than a buffer of the driver.
    Long,
    /// A chain was malformed; the caller may try the frame again.
    Malformed,
}

/// Takes the next chain of a ring, copies its frame into `frame`, and gives the chain back.
///
/// # Errors
/// A [`Broken`] error, if the ring is invalid and has to be stopped.
pub fn take(
    ring: &mut Ring,
    memory: &Memory,
    has_count: bool,
    scratch: &mut Scratch,
    frame: &mut Frame,
) -> Result<Taken, Broken> {
    let pieces = &mut scratch.pieces;
    pieces.clear();
    let Some(chain) = ring.take(memory, Access::Read, pieces)? else { return Ok(Taken::Nothing) };
    let read = chain.bytes.and_then(|bytes| read(memory, pieces, bytes, has_count, frame));
    ring.give_back(memory, chain.head, 0)?;
    Ok(read.map_or(Taken::Malformed, |()| Taken::Frame))
}

fn read(
    memory: &Memory,
    pieces: &[Piece],
    bytes: u64,
    has_count: bool,
    Frame { ethernet, packet }: &mut Frame,
) -> Option<()> {
    let mut count = [0; 2];
    let count = if has_count { &mut count[..] } else { &mut [] };
    let headers = HEADER_BYTES + count.len() + ETHERNET_BYTES;
    let packet_bytes = usize::try_from(bytes).ok()?.checked_sub(headers)?;
    if packet_bytes > PACKET_BYTES_MAX {
        return None;
    }
    packet.clear();
    // Usually a frame lies in one buffer.
    if let [piece] = pieces
        && let Some(slice) = memory.slice(piece.at, headers + packet_bytes)
    {
        let mut head = [0; HEADER_BYTES + 2 + ETHERNET_BYTES];
        let head = &mut head[..headers];
        slice.copy_to(head);
        // `vec![0; n]` calls `calloc`, for which glibc keeps no cached memory.
        packet.reserve_exact(HEADER_BYTES + packet_bytes);
        packet.extend_from_slice(&head[..HEADER_BYTES]);
        packet.resize(HEADER_BYTES + packet_bytes, 0);
        slice.offset(headers).ok()?.copy_to(&mut packet[HEADER_BYTES..]);
        ethernet.copy_from_slice(&head[headers - ETHERNET_BYTES..]);
        return Some(());
    }
    packet.resize(HEADER_BYTES + packet_bytes, 0);
    let (header, payload) = packet.split_at_mut(HEADER_BYTES);
    let mut pieces = pieces.iter();
    let (mut at, mut left) = (0, 0);
    for mut part in [header, count, ethernet, payload] {
        while !part.is_empty() {
            if left == 0 {
                let piece = pieces.next()?;
                (at, left) = (piece.at, usize::try_from(piece.bytes).ok()?);
                continue;
            }
            let (now, rest) = part.split_at_mut(left.min(part.len()));
            memory.read(at, now).ok()?;
            at = at.checked_add(now.len() as u64)?;
            left -= now.len();
            part = rest;
        }
    }
    Some(())
}

/// Layout of a frame in buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Whether the header contains the number of buffers.
    pub has_count: bool,
    /// Whether a frame may occupy several buffers.
    pub may_merge: bool,
}

/// Writes a frame to the next chains of a ring, and gives the chains back.
///
/// # Errors
/// A [`Broken`] error, if the ring is invalid and has to be stopped.
pub fn put(
    ring: &mut Ring,
    memory: &Memory,
    layout: Layout,
    frame: &Frame,
    scratch: &mut Scratch,
) -> Result<Put, Broken> {
    let Scratch { pieces, heads } = scratch;
    pieces.clear();
    heads.clear();
    let count_bytes = if layout.has_count { 2 } else { 0 };
    let wanted = (count_bytes + ETHERNET_BYTES + frame.packet.len()) as u64;
    let (mut room, mut good) = (0, true);
    while room < wanted && good {
        let few = heads.is_empty() || layout.may_merge && heads.len() < BUFFERS_MAX;
        let taken = if few { ring.take(memory, Access::Write, pieces)? } else { None };
        let Some(chain) = taken else {
            ring.untake(u16::try_from(heads.len()).unwrap_or(0));
            return Ok(if few { Put::Full } else { Put::Long });
        };
        good = chain.bytes.is_some();
        let used = chain.bytes.unwrap_or(0).min(wanted - room);
        heads.push((chain.head, u32::try_from(used).unwrap_or(u32::MAX)));
        room += used;
    }
    good = good && write(memory, pieces, layout, heads.len(), frame).is_some();
    for (head, bytes) in heads {
        // Buffers that cannot be written are given back with a length of zero.
        ring.give_back(memory, *head, if good { *bytes } else { 0 })?;
    }
    Ok(if good { Put::Done } else { Put::Malformed })
}

fn write(
    memory: &Memory,
    pieces: &[Piece],
    layout: Layout,
    buffers: usize,
    frame: &Frame,
) -> Option<()> {
    let (header, packet) = frame.packet.split_at_checked(HEADER_BYTES)?;
    let count = u16::try_from(buffers).ok()?.to_le_bytes();
    let count = if layout.has_count { &count[..] } else { &[] };
    let headers = HEADER_BYTES + count.len() + ETHERNET_BYTES;
    let whole = headers + packet.len();
    // Usually a frame fits into one buffer.
    if let [piece] = pieces
        && usize::try_from(piece.bytes).is_ok_and(|bytes| bytes >= whole)
        && let Some(slice) = memory.slice(piece.at, whole)
    {
        // Each part is copied directly to its destination. If the parts were collected first, the
        // processor would read them in other sizes than it wrote them, which is slow.
        slice.copy_from(header);
        if let [low, high] = *count {
            slice.get_ref(HEADER_BYTES).ok()?.store([low, high]);
        }
        slice.offset(headers - ETHERNET_BYTES).ok()?.copy_from(&frame.ethernet);
        slice.offset(headers).ok()?.copy_from(packet);
        return Some(());
    }
    let mut pieces = pieces.iter();
    let (mut at, mut left) = (0, 0);
    for mut part in [header, count, &frame.ethernet, packet] {
        while !part.is_empty() {
            if left == 0 {
                let piece = pieces.next()?;
                (at, left) = (piece.at, usize::try_from(piece.bytes).ok()?);
                continue;
            }
            let (now, rest) = part.split_at(left.min(part.len()));
            memory.write(at, now).ok()?;
            at = at.checked_add(now.len() as u64)?;
            left -= now.len();
            part = rest;
        }
    }
    Some(())
}
