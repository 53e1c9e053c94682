//! Signals by event descriptors that never block.
//!
//! A front end shares the open file of an event descriptor with the device. At any time it can make
//! the file blocking and fill its counter, so that a `write` would block; and `pwritev2` does not
//! support `RWF_NOWAIT` for event descriptors (Linux 6.18). Signals from the kernel itself never
//! block: when a request of asynchronous I/O is done, the kernel adds one to the counter of an
//! event descriptor that the request names (`IOCB_FLAG_RESFD`). So a signal is a read of zero bytes
//! from an empty file in memory, which completes before the call returns. A full counter stays
//! full.
//!
//! The number of contexts for asynchronous I/O is limited for the whole machine, and any user may
//! take all of them. If no context is available, signals use io_uring ([`uring`](super::uring)).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};

use super::uring::Ring;

/// Largest number of requests whose outcomes were not collected yet.
const REQUESTS_MAX: usize = 64;

const PREAD: u16 = 0;
const RESFD: u32 = 1;

/// A request (`struct iocb`).
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    /// `aio_key` and `aio_rw_flags`, whose order depends on the byte order of the machine; both are
    /// zero.
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

/// The outcome of a request (`struct io_event`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Outcome {
    words: [u64; 4],
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<Outcome>() == 32);

/// The asynchronous I/O context of this process.
#[derive(Debug)]
struct Context {
    id: libc::c_ulong,
    /// An empty file in memory, from which each request reads zero bytes.
    empty: OwnedFd,
    /// Requests since the outcomes were last collected.
    requests: usize,
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: no request is in progress in the context.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

/// Mechanism that this process uses for signals.
#[derive(Debug)]
enum Signals {
    Context(Context),
    Ring(Ring),
}

static SIGNALS: OnceLock<Mutex<Signals>> = OnceLock::new();

/// Checks that signals can be sent, and sets up their mechanism.
///
/// # Errors
/// An error of the operating system, if the kernel permits this process neither asynchronous I/O
/// nor io_uring.
pub(crate) fn prepare() -> io::Result<()> {
    signals().map(|_| ())
}

fn signals() -> io::Result<&'static Mutex<Signals>> {
    if let Some(signals) = SIGNALS.get() {
        return Ok(signals);
    }
    // If another thread was first, its mechanism is used, and this one is dropped.
    let made = Mutex::new(Signals::of(Context::new(), Ring::new)?);
    Ok(SIGNALS.get_or_init(|| made))
}

/// Adds one to the counter of an event descriptor, unless the counter is full. Returns whether the
/// kernel accepted the request.
pub(crate) fn give(event: &impl AsFd) -> bool {
    let Ok(signals) = signals() else { return false };
    signals.lock().unwrap_or_else(PoisonError::into_inner).give(event)
}

impl Signals {
    fn of(
        context: io::Result<Context>,
        ring: impl FnOnce() -> io::Result<Ring>,
    ) -> io::Result<Self> {
        let error = match context {
            Ok(context) => return Ok(Self::Context(context)),
            Err(error) => error,
        };
        let of_ring = match ring() {
            Ok(ring) => return Ok(Self::Ring(ring)),
            Err(of_ring) => of_ring,
        };
        let what = match error.raw_os_error() {
            Some(libc::EAGAIN) => "raise fs.aio-max-nr, or set kernel.io_uring_disabled=0 (sysctl)",
            _ => "devices of vhost-user need one of them",
        };
        let what = format!(
            "the kernel lets this process have no asynchronous I/O ({error}) and no ring of \
             requests (io_uring: {of_ring}); {what}"
        );
        Err(io::Error::new(error.kind(), what))
    }

    fn give(&mut self, event: &impl AsFd) -> bool {
        match self {
            Self::Context(context) => context.give(event),
            Self::Ring(ring) => ring.give(event),
        }
    }
}

impl Context {
    fn new() -> io::Result<Self> {
        let empty = memfd_create("srd-vhost-empty", MemfdFlags::CLOEXEC)?;
        let mut id: libc::c_ulong = 0;
        let requests = libc::c_long::try_from(REQUESTS_MAX).unwrap_or(1);
        // SAFETY: the kernel writes the number of the new context to `id`.
        if unsafe { libc::syscall(libc::SYS_io_setup, requests, &raw mut id) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { id, empty, requests: 0 })
    }

    fn give(&mut self, event: &impl AsFd) -> bool {
        if self.requests == REQUESTS_MAX {
            self.collect();
        }
        self.requests += 1;
        self.submit(event)
    }

    fn submit(&self, event: &impl AsFd) -> bool {
        let mut request = Iocb {
            opcode: PREAD,
            file: self.empty.as_raw_fd().unsigned_abs(),
            flags: RESFD,
            event: event.as_fd().as_raw_fd().unsigned_abs(),
            ..Iocb::default()
        };
        let mut requests = [&raw mut request];
        let one: libc::c_long = 1;
        // SAFETY: the pointer is to one request, which the kernel copies. The request reads zero
        // bytes, so its buffer may be null.
        1 == unsafe { libc::syscall(libc::SYS_io_submit, self.id, one, requests.as_mut_ptr()) }
    }

    /// Collects the outcomes of all requests, each of which is done. This frees space for new
    /// requests.
    fn collect(&mut self) {
        let mut outcomes = [Outcome::default(); REQUESTS_MAX];
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let most = libc::c_long::try_from(REQUESTS_MAX).unwrap_or(1);
        let none: libc::c_long = 0;
        // SAFETY: the kernel writes at most as many outcomes as `outcomes` has elements.
        unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                none,
                most,
                outcomes.as_mut_ptr(),
                &raw const at_once,
            )
        };
        self.requests = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn exhausted() -> io::Result<Context> {
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    /// If a local user has taken all of `fs.aio-max-nr`, signals are still sent without blocking.
    #[test]
    fn regression_signals_are_given_without_asynchronous_io() {
        let ring = match Ring::new() {
            Ok(ring) => ring,
            Err(error) => {
                println!("skipped: no ring of requests: {error}");
                return;
            }
        };
        let mut signals = Signals::of(exhausted(), || Ok(ring)).unwrap();
        assert!(matches!(signals, Signals::Ring(_)));
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let count = || {
            let mut counter = [0; 8];
            rustix::io::read(&event, &mut counter).unwrap();
            u64::from_ne_bytes(counter)
        };
        assert!((0..1000).all(|_| signals.give(&event)));
        assert_eq!(count(), 1000);
        // A blocking descriptor whose counter is full.
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert!(signals.give(&event) && signals.give(&event));
        assert_eq!(count(), u64::MAX);
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(!signals.give(&pipe));
        let other = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        assert!(signals.give(&event) && signals.give(&other));
        assert_eq!(count(), 1, "each signal is of its own descriptor");
    }

    #[test]
    fn without_either_the_error_says_what_to_do() {
        let none = || Err(io::Error::from_raw_os_error(libc::EPERM));
        let error = Signals::of(exhausted(), none).unwrap_err().to_string();
        assert!(error.contains("fs.aio-max-nr") && error.contains("io_uring"), "{error}");
    }
}
