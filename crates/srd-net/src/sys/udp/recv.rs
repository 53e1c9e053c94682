//! Scattering receives: a ring of 64 KiB slots that one `recvmmsg` fills, each with one
//! datagram or with several that the kernel coalesced.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::call;
use super::cmsg::{Control, Received};
use super::socket::Socket;
use crate::sys::addr::SockAddr;
use crate::sys::check;

/// Bytes of a slot: the largest message, which is a UDP datagram or several coalesced ones.
const SLOT_BYTES: usize = 65_536;
/// Distance between slots, in bytes. Not a multiple of 64 KiB, because all slots would then use the
/// same sets of the processor's cache.
const SLOT_STRIDE: usize = SLOT_BYTES + 1600;
/// Number of slots for messages in a receive ring.
const SLOTS: usize = 64;
/// Smallest number of slots that a call offers while several messages arrive together.
const SLOTS_MIN: usize = 4;
/// Largest number of bytes that one call should receive, so that all of them are still in the cache
/// when the last message is processed.
const BYTES_PER_CALL: usize = 512 * 1024;

/// A ring of receive slots and the arrays that describe them to the kernel.
#[derive(Debug)]
pub(crate) struct Receiver {
    memory: Vec<u8>,
    slots: Vec<Slot>,
    /// Array that is rebuilt for every call. Its pointers are valid only inside the call.
    pieces: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    /// Smoothed mean of the message size, in bytes.
    message_bytes: usize,
    /// Number of slots that the next call offers to the kernel.
    offered: usize,
    /// Number of messages that the last successful call returned.
    came: usize,
    full: bool,
}

/// Metadata that the kernel writes in addition to the bytes of one message.
#[derive(Clone, Debug)]
struct Slot {
    name: SockAddr,
    name_length: u32,
    control: Control,
    control_length: usize,
    length: usize,
}

/// One received message.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    /// Sender of the message; `None` if the kernel gave no IP address.
    pub source: Option<SocketAddr>,
    /// Metadata of the message.
    pub beside: Received,
    /// Bytes of the message: segments of `beside.segment_bytes`, the last possibly shorter.
    pub bytes: &'a mut [u8],
}

// SAFETY: the raw pointers in `pieces` and `headers` are used only inside the call of
// `Receiver::receive` that wrote them.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Allocates a ring with its memory.
    pub(crate) fn new() -> Self {
        let slot = Slot {
            name: SockAddr::EMPTY,
            name_length: 0,
            control: Control::new(),
            control_length: 0,
            length: 0,
        };
        Self {
            memory: vec![0; SLOTS * SLOT_STRIDE],
            slots: vec![slot; SLOTS],
            pieces: Vec::with_capacity(SLOTS),
            headers: Vec::with_capacity(SLOTS),
            message_bytes: 1500,
            offered: SLOTS_MIN,
            came: 0,
            full: false,
        }
    }

    /// Receives the messages that have arrived, without waiting. Returns the number of messages;
    /// [`Receiver::arrival`] returns each by its index until the next call.
    pub(crate) fn receive(&mut self, socket: &Socket) -> io::Result<usize> {
        self.point_headers_at_slots();
        let n = self.submit(socket).inspect_err(|_| self.expect_few())?;
        let mut total = 0;
        for (slot, header) in self.slots.iter_mut().zip(&self.headers[..n]) {
            slot.name_length = header.msg_hdr.msg_namelen;
            // The type of this length differs between C libraries.
            #[allow(clippy::unnecessary_cast)]
            {
                slot.control_length = header.msg_hdr.msg_controllen as usize;
            }
            slot.length = (header.msg_len as usize).min(SLOT_BYTES);
            total += slot.length;
        }
        self.came = n;
        self.full = n > 1 && n == self.headers.len();
        self.message_bytes = (self.message_bytes * 3 + total / n.max(1)) / 4 + 1;
        let fit = (BYTES_PER_CALL / self.message_bytes).clamp(SLOTS_MIN, SLOTS);
        self.offered = (n * 2).clamp(SLOTS_MIN, fit);
        Ok(n)
    }

    /// Reduces the number of slots that the next call offers, after a call that returned no
    /// message. If the last message came alone, the next call offers one slot. Then the kernel does
    /// not look for a second message before the first is processed.
    pub(crate) fn expect_few(&mut self) {
        self.full = false;
        self.offered = if self.came > 1 { SLOTS_MIN } else { 1 };
    }

    fn submit(&mut self, socket: &Socket) -> io::Result<usize> {
        let fd = socket.as_fd().as_raw_fd();
        if let [one] = self.headers.as_mut_slice() {
            // SAFETY: the header points to a name, a control buffer and a piece that belong to
            // `self` and are as long as announced; the piece describes one slot of `memory`.
            // Nothing else borrows them while `self` is borrowed mutably.
            let n = unsafe { call::recvmsg(fd, &raw mut one.msg_hdr) };
            let length = check(n)?;
            one.msg_len = libc::c_uint::try_from(length).unwrap_or(0);
            return Ok(1);
        }
        let count = libc::c_uint::try_from(self.headers.len()).unwrap_or(1);
        // SAFETY: each of the `count` headers is valid as described for the single header above.
        check(unsafe { call::recvmmsg(fd, self.headers.as_mut_ptr(), count) })
    }

    fn point_headers_at_slots(&mut self) {
        self.pieces.clear();
        self.headers.clear();
        for bytes in self.memory.chunks_mut(SLOT_STRIDE).take(self.offered) {
            let base = bytes.as_mut_ptr().cast();
            self.pieces.push(libc::iovec { iov_base: base, iov_len: SLOT_BYTES });
        }
        for (slot, piece) in self.slots.iter_mut().zip(&mut self.pieces) {
            // SAFETY: all-zero is a valid msghdr; some C libraries have private padding in this
            // structure.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_name = slot.name.as_mut_ptr();
            header.msg_hdr.msg_namelen = SockAddr::CAPACITY;
            header.msg_hdr.msg_iov = std::ptr::from_mut(piece);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = slot.control.as_mut_ptr();
            header.msg_hdr.msg_controllen = Control::CAPACITY;
            self.headers.push(header);
        }
    }

    /// Whether the last call used every slot that it offered. If so, more messages are probably
    /// waiting.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Returns the bytes of the `index`th message of the last call.
    pub(crate) fn bytes(&self, index: usize) -> &[u8] {
        let start = index * SLOT_STRIDE;
        &self.memory[start..start + self.slots[index].length]
    }

    /// Returns the `index`th message of the last call, with its metadata.
    pub(crate) fn arrival(&mut self, index: usize) -> Arrival<'_> {
        let slot = &self.slots[index];
        let start = index * SLOT_STRIDE;
        Arrival {
            source: slot.name.decode(slot.name_length),
            beside: slot.control.parse(slot.control_length),
            bytes: &mut self.memory[start..start + slot.length],
        }
    }
}
