//! Signals by event descriptors that never block, for kernels without a free context of
//! asynchronous I/O: any user may take all of `fs.aio-max-nr`.
//!
//! A ring of io_uring adds one to the counter of a registered event descriptor whenever a request
//! is done. As with asynchronous I/O, the kernel does this without blocking. So a signal consists
//! of the registration of the descriptor and a request without effect, which completes before the
//! call returns. This takes three system calls; asynchronous I/O takes one.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

/// Capacity of the ring in requests. At most one request is in progress.
const ENTRIES: u32 = 1;

const REGISTER_EVENT: u32 = 4;
const UNREGISTER_EVENT: u32 = 5;
const GET_EVENTS: u32 = 1;
/// Flag of the kernel: both rings are in one mapping (Linux 5.4).
const ONE_MAPPING: u32 = 1;
const RINGS_AT: libc::off_t = 0;
const REQUESTS_AT: libc::off_t = 0x1000_0000;
/// Length of a request in bytes. A request of zeros has no effect.
const REQUEST_BYTES: usize = 64;
/// Length of an outcome in bytes.
const OUTCOME_BYTES: usize = 16;

/// Offsets of the parts of the submission ring (`struct io_sqring_offsets`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Requests {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    reserved: [u32; 3],
}

/// Offsets of the parts of the completion ring (`struct io_cqring_offsets`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Outcomes {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    overflow: u32,
    all: u32,
    reserved: [u32; 4],
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Parameters {
    requests: u32,
    outcomes: u32,
    flags: u32,
    thread: [u32; 2],
    features: u32,
    other: u32,
    reserved: [u32; 3],
    at_requests: Requests,
    at_outcomes: Outcomes,
}

const _: () = assert!(size_of::<Parameters>() == 120);

/// A ring for signals.
#[derive(Debug)]
pub(crate) struct Ring {
    ring: OwnedFd,
    rings: Mapping,
    /// Array of requests, all zeros. The ring reads the array as long as the ring exists.
    _requests: Mapping,
    tail_at: usize,
    head_at: usize,
    outcomes_at: usize,
}

#[derive(Debug)]
struct Mapping {
    at: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the memory is shared with the kernel, and its only owner accesses it through atomic
// numbers.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made below, and no reference to it remains.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}

impl Mapping {
    fn of(ring: &OwnedFd, offset: libc::off_t, bytes: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: creates a new mapping at an address that the kernel chooses.
        let at = unsafe { libc::mmap(null_mut(), bytes, access, flags, ring.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { at, bytes })
        }
    }

    fn number(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.bytes, "it lies in the mapping");
        // SAFETY: the number lies in the mapping, which lives as long as `self`. It is aligned,
        // since mappings begin at a page boundary. Both sides access it as an atomic number.
        unsafe { AtomicU32::from_ptr(self.at.byte_add(at).cast()) }
    }
}

impl Ring {
    /// Creates a ring for signals.
    ///
    /// # Errors
    /// An error of the operating system, if the kernel does not support io_uring, or does not
    /// permit it for this process.
    pub(crate) fn new() -> io::Result<Self> {
        let mut of = Parameters::default();
        // SAFETY: the kernel reads and writes the parameters.
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, &raw mut of) };
        let ring = i32::try_from(ring).map_err(|_| io::ErrorKind::Other)?;
        if ring < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has created this descriptor, and no other value owns it. It is closed
        // when another program is executed.
        let ring = unsafe { OwnedFd::from_raw_fd(ring) };
        if of.features & ONE_MAPPING == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let requests_end = of.at_requests.array as usize + 4 * of.requests as usize;
        let outcomes_end = of.at_outcomes.all as usize + OUTCOME_BYTES * of.outcomes as usize;
        let rings = Mapping::of(&ring, RINGS_AT, requests_end.max(outcomes_end))?;
        let bytes = REQUEST_BYTES * of.requests as usize;
        let requests = Mapping::of(&ring, REQUESTS_AT, bytes)?;
        // Each entry of the ring refers to the first request.
        for place in 0..of.requests as usize {
            rings.number(of.at_requests.array as usize + 4 * place).store(0, Ordering::Relaxed);
        }
        let [tail_at, head_at, outcomes_at] =
            [of.at_requests.tail, of.at_outcomes.head, of.at_outcomes.tail].map(|at| at as usize);
        Ok(Self { ring, rings, _requests: requests, tail_at, head_at, outcomes_at })
    }

    /// Adds one to the counter of an event descriptor, unless the counter is full. Returns whether
    /// the kernel has done so.
    pub(crate) fn give(&mut self, event: &impl AsFd) -> bool {
        if !self.register(REGISTER_EVENT, &event.as_fd().as_raw_fd()) {
            return false;
        }
        let tail = self.rings.number(self.tail_at);
        tail.store(tail.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        let ring = self.ring.as_raw_fd();
        let none: *const libc::c_void = null_mut();
        // SAFETY: the one request consists of zeros: it has no effect, and completes immediately.
        let done = unsafe {
            libc::syscall(libc::SYS_io_uring_enter, ring, 1_u32, 1_u32, GET_EVENTS, none, 0_usize)
        };
        // Consuming the outcome frees space for the next one.
        let outcomes = self.rings.number(self.outcomes_at).load(Ordering::Acquire);
        self.rings.number(self.head_at).store(outcomes, Ordering::Release);
        self.register(UNREGISTER_EVENT, &0) && done == 1
    }

    fn register(&self, what: u32, event: &i32) -> bool {
        let (arguments, count) = if what == REGISTER_EVENT {
            (&raw const *event, 1_u32)
        } else {
            (null_mut::<i32>().cast_const(), 0)
        };
        let ring = self.ring.as_raw_fd();
        // SAFETY: the kernel reads the number of one descriptor, or nothing.
        0 == unsafe { libc::syscall(libc::SYS_io_uring_register, ring, what, arguments, count) }
    }
}
