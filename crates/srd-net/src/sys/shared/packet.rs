//! A packet socket that hands over the packets that an interface sends and receives, in memory
//! shared with the kernel: `TPACKET_V3`, see packet_mmap in the kernel's documentation.
//!
//! ```text
//!  mapping   block | block | block ...          the kernel fills them in turn
//!  block     status, packets, offset of the first | packet | packet ...
//!  packet    header | address | ... virtio_net_hdr | link header | network header ...
//! ```
//!
//! A block belongs to the kernel until its status changes, and then to this process until it writes
//! the status back: so no byte is read and written at the same time. If no block belongs to the
//! kernel, the kernel does not copy the packet into the ring, and counts it as dropped.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::ring::Mapping;
use crate::sys::check;

/// Length in bytes of a block of the ring, which holds several packets.
const BLOCK_BYTES: u32 = 1 << 18;
/// Bytes of a frame, the kernel's unit for dividing blocks. `TPACKET_V3` requires a value, but does
/// not use it for the layout of packets.
const FRAME_BYTES: u32 = 2048;
/// Time after which the kernel hands over a block that is not full.
const BLOCK_TIMEOUT_MS: u32 = 10;
/// Bytes of `virtio_net_hdr` before each packet.
const OFFLOAD_BYTES: usize = 10;
/// Bytes of a packet's header; the address of the sender follows.
const HEADER_BYTES: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(16);
/// Largest number of packets in one block: a packet with its header takes at least 64 bytes.
const BLOCK_PACKETS_MAX: u32 = BLOCK_BYTES / 64;

/// A packet as the interface sent or received it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// Time when the kernel handled the packet, in nanoseconds since 1970.
    pub(crate) time_ns: u64,
    /// The kernel's type of the packet, such as `PACKET_OUTGOING` for a packet of this machine.
    pub(crate) kind: u8,
    /// Protocol after the link header, as an EtherType.
    pub(crate) protocol: u16,
    /// Length of the packet from the network header on, in bytes, including bytes that were not
    /// copied.
    pub(crate) length: u32,
    /// The `virtio_net_hdr`: work that the kernel leaves to hardware, such as segmentation.
    pub(crate) offload: [u8; OFFLOAD_BYTES],
    /// The copied bytes of the packet, from the network header on.
    pub(crate) bytes: &'a [u8],
}

/// A packet socket and its ring.
#[derive(Debug)]
pub(crate) struct PacketRing {
    fd: OwnedFd,
    mapping: Mapping,
    blocks: usize,
    /// The block that the kernel fills next.
    next: usize,
}

impl PacketRing {
    /// Opens a ring of about `ring_bytes` for the packets of the interface with this index. The
    /// first `kept_bytes` of each packet are copied.
    pub(crate) fn open(index: u32, kept_bytes: u32, ring_bytes: u32) -> io::Result<Self> {
        let blocks = (ring_bytes / BLOCK_BYTES).max(2);
        let fd = socket()?;
        let as_fd = fd.as_fd();
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(as_fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        set(as_fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1_i32)?;
        keep_only(as_fd, kept_bytes)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES,
            tp_block_nr: blocks,
            tp_frame_size: FRAME_BYTES,
            tp_frame_nr: BLOCK_BYTES / FRAME_BYTES * blocks,
            tp_retire_blk_tov: BLOCK_TIMEOUT_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(as_fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let blocks = blocks as usize;
        let mapping = Mapping::of(as_fd, blocks * BLOCK_BYTES as usize, 0)?;
        bind(as_fd, index)?;
        Ok(Self { fd, mapping, blocks, next: 0 })
    }

    /// Calls `see` with every packet of the next block, and returns the block to the kernel.
    /// Returns false if the kernel has not filled the block yet.
    pub(crate) fn next_block(&mut self, mut see: impl FnMut(Frame<'_>)) -> bool {
        let base = self.next * BLOCK_BYTES as usize;
        if self.status(base).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the block belongs to this process until its status is written back below, after
        // the last use of `block`; base and length are inside the mapping.
        let block = unsafe {
            let at = self.mapping.at(base, BLOCK_BYTES as usize);
            std::slice::from_raw_parts(at.cast_const(), BLOCK_BYTES as usize)
        };
        each_packet(block, &mut see);
        self.status(base).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        true
    }

    /// Returns the number of packets for this socket, and the number of packets for which the ring
    /// had no free space, since the last call.
    pub(crate) fn statistics(&self) -> io::Result<(u64, u64)> {
        let mut found = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut length = libc::socklen_t::try_from(size_of_val(&found)).unwrap_or(0);
        // SAFETY: `found` has room for the bytes that `length` announces.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut found).cast(),
                &raw mut length,
            )
        };
        check(result as isize)?;
        Ok((found.tp_packets.into(), found.tp_drops.into()))
    }

    /// Returns an error that has occurred on the socket, such as the removal of the interface.
    pub(crate) fn error(&self) -> io::Result<()> {
        let mut error = 0_i32;
        let mut length = 4;
        // SAFETY: `error` has room for the four bytes that `length` announces.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut error).cast(),
                &raw mut length,
            )
        };
        check(result as isize)?;
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        let at = block
            + std::mem::offset_of!(libc::tpacket_block_desc, hdr)
            + std::mem::offset_of!(libc::tpacket_hdr_v1, block_status);
        let place = self.mapping.at(at, size_of::<u32>()).cast();
        // SAFETY: the address is inside the mapping and aligned (blocks begin on pages), is valid
        // as long as `self`, and is only accessed atomically while the kernel may write it.
        unsafe { AtomicU32::from_ptr(place) }
    }
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Reads the packets of a block that belongs to this process. Reading ends if an offset is outside
/// the block.
fn each_packet(block: &[u8], see: &mut impl FnMut(Frame<'_>)) {
    let head = std::mem::offset_of!(libc::tpacket_block_desc, hdr);
    let field = |offset: usize| u32_at(block, head + offset);
    let packets = field(std::mem::offset_of!(libc::tpacket_hdr_v1, num_pkts));
    let first = field(std::mem::offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt));
    let (Some(packets), Some(first)) = (packets, first) else { return };
    let mut at = first as usize;
    for _ in 0..packets.min(BLOCK_PACKETS_MAX) {
        let Some(bytes) = block.get(at..) else { return };
        let Some((frame, next)) = packet(bytes) else { return };
        see(frame);
        if next == 0 {
            return;
        }
        at += next;
    }
}

/// Returns the packet at the beginning of `bytes`, and the number of bytes from there to the next
/// packet, 0 after the last packet; `None` if the header is not within `bytes`.
fn packet(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
    use std::mem::offset_of;
    type Head = libc::tpacket3_hdr;
    let field = |offset: usize| u32_at(bytes, offset);
    let (seconds, nanos) = (field(offset_of!(Head, tp_sec))?, field(offset_of!(Head, tp_nsec))?);
    let kept = field(offset_of!(Head, tp_snaplen))? as usize;
    let length = field(offset_of!(Head, tp_len))?;
    let link = usize::from(u16_at(bytes, offset_of!(Head, tp_mac))?);
    let network = usize::from(u16_at(bytes, offset_of!(Head, tp_net))?);
    let protocol = u16_at(bytes, HEADER_BYTES + offset_of!(libc::sockaddr_ll, sll_protocol))?;
    let kind = *bytes.get(HEADER_BYTES + offset_of!(libc::sockaddr_ll, sll_pkttype))?;
    let link_bytes = network.checked_sub(link)?;
    let end = link + kept;
    let frame = Frame {
        time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(nanos),
        kind,
        protocol: u16::from_be(protocol),
        length: length.saturating_sub(u32::try_from(link_bytes).ok()?),
        offload: bytes.get(link.checked_sub(OFFLOAD_BYTES)?..link)?.try_into().ok()?,
        bytes: bytes.get(network.min(end)..end)?,
    };
    Some((frame, field(offset_of!(Head, tp_next_offset))? as usize))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Opens a packet socket that receives nothing until it is bound.
fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes and returns integers; the returned descriptor is new, and belongs to this
    // function.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) } as isize)?;
    let fd = i32::try_from(fd).unwrap_or(-1);
    // SAFETY: `fd` was just created, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds the socket to an interface, whose packets it receives from now on.
fn bind(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let every = u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be();
    let address = libc::sockaddr_ll {
        sll_family: libc::sa_family_t::try_from(libc::AF_PACKET).unwrap_or(0),
        sll_protocol: every,
        sll_ifindex: i32::try_from(index).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or(0);
    // SAFETY: `address` holds `length` bytes of a socket address.
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    check(result as isize)?;
    Ok(())
}

/// Attaches a filter that accepts the first `bytes` bytes of every packet.
fn keep_only(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let code = u16::try_from(libc::BPF_RET | libc::BPF_K).unwrap_or(0);
    let mut filter = [libc::sock_filter { code, jt: 0, jf: 0, k: bytes }];
    // The call copies the program.
    let program = libc::sock_fprog { len: 1, filter: filter.as_mut_ptr() };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Sets an option whose value is a C structure.
fn set<T>(fd: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: `value` points to `length` bytes that outlive the call, which only reads them.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, length) };
    check(result as isize)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a block with one packet of 60 bytes, of which 40 were copied.
    fn block() -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        let head = std::mem::offset_of!(libc::tpacket_block_desc, hdr);
        put(head + 4, &1_u32.to_ne_bytes());
        put(head + 8, &48_u32.to_ne_bytes());
        for (n, value) in [0, 7, 9, 40, 60].into_iter().enumerate() {
            put(48 + 4 * n, &u32::to_ne_bytes(value));
        }
        put(48 + 24, &92_u16.to_ne_bytes());
        put(48 + 26, &106_u16.to_ne_bytes());
        put(48 + HEADER_BYTES + 2, &[8, 0]);
        put(48 + HEADER_BYTES + 10, &[libc::PACKET_OUTGOING]);
        put(48 + 106, &[0x45]);
        block
    }

    #[test]
    fn a_packet_is_read_from_its_network_header_on() {
        let mut seen = 0;
        each_packet(&block(), &mut |frame| {
            seen += 1;
            assert_eq!(frame.time_ns, 7_000_000_009);
            assert_eq!((frame.protocol, frame.kind), (0x0800, libc::PACKET_OUTGOING));
            assert_eq!((frame.length, frame.bytes.len(), frame.bytes[0]), (46, 26, 0x45));
        });
        assert_eq!(seen, 1);
    }

    #[test]
    fn no_offset_leaves_the_block() {
        let whole = block();
        for at in 0..200 {
            for value in [0, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                each_packet(&changed, &mut |_| ());
                each_packet(&changed[..200], &mut |_| ());
            }
        }
        let mut circle = whole;
        let head = std::mem::offset_of!(libc::tpacket_block_desc, hdr);
        circle[head + 4..head + 8].copy_from_slice(&u32::MAX.to_ne_bytes());
        circle[48..52].copy_from_slice(&u32::MAX.to_ne_bytes());
        let mut seen = 0;
        each_packet(&circle, &mut |_| seen += 1);
        assert_eq!(seen, 1, "the next packet is out of sight");
    }
}
