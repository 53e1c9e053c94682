//! An AF_XDP socket: packets move between a queue of a network interface and memory of this process
//! (the UMEM), in frames of [`FRAME_BYTES`].
//!
//! A [`Frame`] represents a part of the UMEM while this process, and not the kernel, may use this
//! part. A `Frame` cannot be copied: it passes to the kernel through one ring, and comes back
//! through another ring. So no byte is used by both at the same time. Each ring has a slot for
//! every frame that can be in it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::ring::{Consumer, Mapping, Producer, RingLayout};
use crate::sys::check;

/// Bytes of a frame: one page, the largest size that every kernel accepts.
pub(crate) const FRAME_BYTES: usize = 4096;
/// Bytes at the start of a frame that the kernel keeps free on receive (`XDP_PACKET_HEADROOM`).
const HEADROOM_BYTES: usize = 256;
/// Largest number of bytes, including the link-layer header, that one frame can receive.
pub(crate) const FRAME_RECEIVES_BYTES: usize = FRAME_BYTES - HEADROOM_BYTES;
/// Largest number of frames for each direction.
const FRAMES_MAX: u32 = 1 << 17;
/// Largest number of system calls for one notification of the kernel. In copy mode each call sends
/// 32 frames.
const DOORBELL_CALLS_MAX: usize = 64;

/// A part of the UMEM that this process may use.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    start: usize,
}

/// A part of a packet that has arrived.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The frame that holds the packet.
    pub(crate) frame: Frame,
    /// Offset of the packet in the frame.
    pub(crate) offset: usize,
    /// Bytes of this part of the packet.
    pub(crate) length: usize,
    /// Whether the packet continues in the next piece.
    pub(crate) more: bool,
}

/// Options of the socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Index of the interface.
    pub(crate) interface: u32,
    /// Queue of the interface.
    pub(crate) queue: u32,
    /// Whether the kernel must copy packets, because zero copy is not allowed.
    pub(crate) copy: bool,
    /// Whether packets may take several frames.
    pub(crate) several_frames: bool,
    /// Number of frames to receive into.
    pub(crate) receive_frames: u32,
    /// Number of frames to send from.
    pub(crate) send_frames: u32,
}

/// A step of opening a socket that the kernel refused, and the kernel's error.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) step: &'static str,
    pub(crate) error: io::Error,
}

/// Adds the name of the step to an error.
pub(crate) fn step<T>(step: &'static str, result: io::Result<T>) -> Result<T, Refused> {
    result.map_err(|error| Refused { step, error })
}

/// Result of notifying the kernel of queued frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doorbell {
    /// The kernel has taken all frames.
    Taken,
    /// Some frames wait in the ring, and are sent after a later notification.
    Waiting,
    /// The interface accepts no packets. The value is the kernel's error number.
    Down(i32),
}

/// Counters of the kernel for one socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) dropped: u64,
    pub(crate) ring_full: u64,
    pub(crate) no_frame: u64,
}

/// An AF_XDP socket with its memory and its rings.
#[derive(Debug)]
pub(crate) struct XdpSocket {
    fd: OwnedFd,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<libc::xdp_desc>,
    send: Producer<libc::xdp_desc>,
    memory: Mapping,
    zero_copy: bool,
    several_frames: bool,
}

impl XdpSocket {
    /// Checks whether this process may open an AF_XDP socket.
    ///
    /// # Errors
    /// An error of the operating system, if a right or the kernel's support is missing.
    pub(crate) fn may_open() -> io::Result<()> {
        socket().map(drop)
    }

    /// Opens an AF_XDP socket. Returns it with the frames to send from. The frames to receive into
    /// belong to the kernel.
    pub(crate) fn open(request: &Request) -> Result<(Self, Vec<Frame>), Refused> {
        let (to_receive, to_send) = (request.receive_frames, request.send_frames);
        assert!((1..=FRAMES_MAX).contains(&to_receive) && (1..=FRAMES_MAX).contains(&to_send));
        let fd = step("opening an AF_XDP socket", socket())?;
        let bytes = (to_receive + to_send) as usize * FRAME_BYTES;
        let memory = step("taking memory for packets", Mapping::anonymous(bytes))?;
        step("registering memory for packets", register(fd.as_fd(), &memory))?;
        let sizes = (to_receive.next_power_of_two(), to_send.next_power_of_two());
        let mut this = step("making the rings", Self::with_rings(fd, memory, sizes))?;
        for number in 0..to_receive as usize {
            this.give(Frame { start: number * FRAME_BYTES });
        }
        this.fill.publish();
        this.several_frames = step("binding the AF_XDP socket", this.bind(request))?;
        this.zero_copy = step("asking for the mode", is_zero_copy(this.fd.as_fd()))?;
        let to_send = to_receive as usize..(to_receive + to_send) as usize;
        let free = to_send.map(|number| Frame { start: number * FRAME_BYTES }).collect();
        Ok((this, free))
    }

    fn with_rings(fd: OwnedFd, memory: Mapping, sizes: (u32, u32)) -> io::Result<Self> {
        let (to_receive, to_send) = sizes;
        for (ring, slots) in [
            (libc::XDP_UMEM_FILL_RING, to_receive),
            (libc::XDP_RX_RING, to_receive),
            (libc::XDP_UMEM_COMPLETION_RING, to_send),
            (libc::XDP_TX_RING, to_send),
        ] {
            set(fd.as_fd(), ring, &slots)?;
        }
        // SAFETY: all-zero is a valid structure of offsets.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        ask(fd.as_fd(), libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        let place = |parts, slots, offset: u64| {
            let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
            io::Result::Ok(RingLayout { offset, parts, slots })
        };
        let of = |offset: libc::off_t| u64::try_from(offset).unwrap_or(0);
        let fill = place(offsets.fr, to_receive, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let completion = place(offsets.cr, to_send, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let receive = place(offsets.rx, to_receive, of(libc::XDP_PGOFF_RX_RING))?;
        let send = place(offsets.tx, to_send, of(libc::XDP_PGOFF_TX_RING))?;
        Ok(Self {
            fill: Producer::map(fd.as_fd(), fill)?,
            completion: Consumer::map(fd.as_fd(), completion)?,
            receive: Consumer::map(fd.as_fd(), receive)?,
            send: Producer::map(fd.as_fd(), send)?,
            fd,
            memory,
            zero_copy: false,
            several_frames: false,
        })
    }

    /// Binds the socket. Returns whether packets may take several frames, which kernels before 6.6
    /// and some drivers refuse.
    fn bind(&self, request: &Request) -> io::Result<bool> {
        let refuses = |error: &io::Error| {
            matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
        };
        if request.several_frames {
            match self.bind_with(request, libc::XDP_USE_SG) {
                Err(error) if refuses(&error) => {}
                bound => return bound.map(|()| true),
            }
        }
        self.bind_with(request, 0).map(|()| false)
    }

    /// Binds the socket. `several`: the flag for packets in several frames, or zero. If `request`
    /// does not require copying, the kernel tries zero copy and falls back to copying.
    fn bind_with(&self, request: &Request, several: u16) -> io::Result<()> {
        let copy = if request.copy { libc::XDP_COPY } else { 0 };
        let address = libc::sockaddr_xdp {
            sxdp_family: u16::try_from(libc::AF_XDP).unwrap_or(0),
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP | copy | several,
            sxdp_ifindex: request.interface,
            sxdp_queue_id: request.queue,
            sxdp_shared_umem_fd: 0,
        };
        let length = length_of::<libc::sockaddr_xdp>();
        // SAFETY: the address is valid and as long as announced.
        let result =
            unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), length) };
        check(result as isize).map(drop)
    }

    /// Whether packets move without a copy.
    pub(crate) fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Whether packets may take several frames.
    pub(crate) fn takes_several_frames(&self) -> bool {
        self.several_frames
    }

    /// Returns the memory of a frame.
    pub(crate) fn bytes(&mut self, frame: &Frame) -> &mut [u8] {
        let start = self.memory.at(frame.start, FRAME_BYTES);
        // SAFETY: the address is inside the UMEM. A frame belongs to this process alone, and the
        // borrow of `self` prevents a second borrow of its bytes.
        unsafe { std::slice::from_raw_parts_mut(start, FRAME_BYTES) }
    }

    /// Takes the next part of a packet that has arrived.
    pub(crate) fn take(&mut self) -> Option<Piece> {
        let entry = self.receive.pop()?;
        let place = usize::try_from(entry.addr).unwrap_or(usize::MAX);
        let offset = place % FRAME_BYTES;
        let frame = self.frame(entry.addr)?;
        let length = (entry.len as usize).min(FRAME_BYTES - offset);
        Some(Piece { frame, offset, length, more: entry.options & libc::XDP_PKT_CONTD != 0 })
    }

    /// Gives a frame to the kernel, which may receive into it after [`XdpSocket::publish`].
    pub(crate) fn give(&mut self, frame: Frame) {
        let given = self.fill.push(frame.start as u64);
        debug_assert!(given, "the fill ring has room for every frame");
    }

    /// Publishes to the kernel which packets were taken and which frames were given.
    pub(crate) fn publish(&mut self) {
        self.receive.release();
        self.fill.publish();
    }

    /// Queues the first `length` bytes of a frame; the next notification sends them. `more`: the
    /// packet continues in the next frame.
    pub(crate) fn queue(&mut self, frame: Frame, length: usize, more: bool) {
        let options = if more { libc::XDP_PKT_CONTD } else { 0 };
        let len = u32::try_from(length).unwrap_or(u32::MAX);
        let queued = self.send.push(libc::xdp_desc { addr: frame.start as u64, len, options });
        debug_assert!(queued, "the send ring has room for every frame");
    }

    /// Takes back a frame whose packet was sent.
    pub(crate) fn completed(&mut self) -> Option<Frame> {
        let address = self.completion.pop()?;
        self.completion.release();
        self.frame(address)
    }

    /// Notifies the kernel of queued frames.
    pub(crate) fn doorbell(&mut self, calls: &mut u64) -> Doorbell {
        self.send.publish();
        // In zero-copy mode the driver continues without further calls; in copy mode the calls
        // themselves copy.
        let calls_max = if self.zero_copy { 1 } else { DOORBELL_CALLS_MAX };
        for _ in 0..calls_max {
            if self.send.is_drained() || !self.send.needs_wakeup() {
                return Doorbell::Taken;
            }
            *calls += 1;
            match self.kick_send() {
                Ok(()) => {}
                Err(error) => match error.raw_os_error().unwrap_or(0) {
                    // The kernel has reached the limit of one call, or a packet did not fit into a
                    // queue.
                    libc::EAGAIN | libc::EBUSY | libc::EINTR => {}
                    libc::ENOBUFS | libc::ENOMEM => return Doorbell::Waiting,
                    errno => return Doorbell::Down(errno),
                },
            }
        }
        if self.zero_copy || self.send.is_drained() { Doorbell::Taken } else { Doorbell::Waiting }
    }

    fn kick_send(&self) -> io::Result<()> {
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: the call passes neither bytes nor an address.
        check(unsafe { libc::sendto(fd, std::ptr::null(), 0, flags, std::ptr::null(), 0) })
            .map(drop)
    }

    /// Notifies a device that waits for frames to receive into.
    pub(crate) fn wake_receive(&self) {
        if self.fill.needs_wakeup() {
            let (fd, flags, none) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT, std::ptr::null_mut());
            // SAFETY: the call passes no memory. An error means that there is no device to notify.
            unsafe { libc::recvfrom(fd, none, 0, flags, std::ptr::null_mut(), none.cast()) };
        }
    }

    /// Returns the counters of the kernel.
    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        // SAFETY: all-zero is a valid structure of counters.
        let mut found: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        ask(self.fd.as_fd(), libc::XDP_STATISTICS, &mut found)?;
        let no_frame = found.rx_fill_ring_empty_descs;
        Ok(Statistics { dropped: found.rx_dropped, ring_full: found.rx_ring_full, no_frame })
    }

    /// Returns the frame of an address that the kernel gave back; `None` if the address is outside
    /// the UMEM.
    fn frame(&self, address: u64) -> Option<Frame> {
        let address = usize::try_from(address).ok()?;
        let start = address - address % FRAME_BYTES;
        (start < self.memory.bytes()).then_some(Frame { start })
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes and returns integers; the returned descriptor is new, and belongs to this
    // function.
    let fd = check(unsafe { libc::socket(libc::AF_XDP, kind, 0) } as isize)?;
    // SAFETY: the descriptor was just created, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1)) })
}

fn register(fd: BorrowedFd<'_>, memory: &Mapping) -> io::Result<()> {
    let region = libc::xdp_umem_reg {
        addr: memory.address(),
        len: memory.bytes() as u64,
        chunk_size: u32::try_from(FRAME_BYTES).unwrap_or(0),
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(fd, libc::XDP_UMEM_REG, &region)
}

fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut options = libc::xdp_options { flags: 0 };
    ask(fd, libc::XDP_OPTIONS, &mut options)?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

fn set<T>(fd: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let (place, length) = (std::ptr::from_ref(value).cast(), length_of::<T>());
    // SAFETY: the value is as long as announced and only read.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, place, length) };
    check(result as isize).map(drop)
}

/// Reads an option of the socket. `T` is one of the kernel's structures of plain numbers.
fn ask<T>(fd: BorrowedFd<'_>, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let (place, mut length) = (std::ptr::from_mut(value).cast(), length_of::<T>());
    // SAFETY: the kernel writes no more than `length` bytes, which `value` has.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, place, &raw mut length) };
    check(result as isize).map(drop)
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}
