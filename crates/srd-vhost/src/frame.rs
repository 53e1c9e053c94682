//! Frames from and to buffers of a ring.
//!
//! In a buffer a frame stands behind the header of virtio-net (VIRTIO 1.2, section 5.1.6), ten
//! bytes and, with `VERSION_1` or `MRG_RXBUF`, the number of buffers that it takes. A frame that
//! does not fit into one buffer goes on in the next ones, with `MRG_RXBUF`.

use vm_memory::VolatileMemory;

use crate::memory::Memory;
use crate::ring::{Access, Broken, Piece, Ring};

/// Bytes of virtio-net's header without the number of buffers.
pub const HEADER_BYTES: usize = 10;
/// Bytes of an Ethernet header.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of the longest packet: a super-packet of 64 KB.
pub const PACKET_BYTES_MAX: usize = 65_535;
/// Buffers that a frame may take.
const BUFFERS_MAX: usize = 128;

/// Memory for what is known of buffers between two frames.
#[derive(Debug, Default)]
pub struct Scratch {
    pieces: Vec<Piece>,
    /// Heads of chains, with the bytes that each of them takes of a frame.
    heads: Vec<(u16, u32)>,
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// Its Ethernet header.
    pub ethernet: [u8; ETHERNET_BYTES],
    /// The offload header ([`HEADER_BYTES`], offsets counted from the Ethernet header on), and
    /// the packet behind the Ethernet header.
    pub packet: Vec<u8>,
}

/// Result of taking the next chain of a ring that a device reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// No chain waits.
    Nothing,
    /// The chain held a frame.
    Frame,
    /// The chain was malformed, or held no frame.
    Malformed,
}

/// Result of putting a frame into a ring that a device writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The driver gets it.
    Done,
    /// The driver has no buffers there.
    Full,
    /// The frame is longer than a buffer of the driver's.
    Long,
    /// A chain was malformed; the frame may be tried again.
    Malformed,
}

/// Takes the next chain of a ring, and gives it back. `frame` becomes the frame that it held.
///
/// # Errors
/// The ring cannot go on.
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
    // Most frames lie in one buffer.
    if let [piece] = pieces
        && let Some(slice) = memory.slice(piece.at, headers + packet_bytes)
    {
        let mut head = [0; HEADER_BYTES + 2 + ETHERNET_BYTES];
        let head = &mut head[..headers];
        slice.copy_to(head);
        // Not `vec![0; n]`, which is `calloc`: glibc keeps no memory at hand for that.
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
    /// Whether the header has the number of buffers.
    pub has_count: bool,
    /// Whether a frame may take several buffers.
    pub may_merge: bool,
}

/// Puts a frame into the next chains of a ring, and gives them back.
///
/// # Errors
/// The ring cannot go on.
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
        // Buffers that cannot be written are given back empty.
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
    // Most frames fit into one buffer.
    if let [piece] = pieces
        && usize::try_from(piece.bytes).is_ok_and(|bytes| bytes >= whole)
        && let Some(slice) = memory.slice(piece.at, whole)
    {
        // Each part to its place: gathered first, they would be read in other pieces than they
        // were written in, which takes a processor long.
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
