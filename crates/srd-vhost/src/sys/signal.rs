//! Signals by event descriptors, without a wait.
//!
//! A front end has the same open file as the device. It can make it a blocking one, and fill its
//! counter, at any moment, so that a `write` waits for a reader; `pwritev2` does not support
//! `RWF_NOWAIT` for event descriptors (Linux 6.18). The kernel's own signals never wait:
//! asynchronous I/O adds one to the counter of a descriptor that a request names
//! (`IOCB_FLAG_RESFD`) when that request is done. So a signal is a read of no bytes from an empty
//! file in memory, which is done before the call returns. A counter that is full stays full.
//!
//! Contexts of asynchronous I/O are bounded for the whole machine, and any user may take all of
//! them. Without one, signals are given by a ring of requests ([`uring`](super::uring)).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};

use super::uring::Ring;

/// Requests whose outcome was not collected yet.
const REQUESTS_MAX: usize = 64;

const PREAD: u16 = 0;
const RESFD: u32 = 1;

/// A request (`struct iocb`).
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    /// `aio_key` and `aio_rw_flags`, whose order differs between machines; both are zero.
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

/// The context of this process's requests.
#[derive(Debug)]
struct Context {
    id: libc::c_ulong,
    /// A file without bytes.
    empty: OwnedFd,
    /// Requests since outcomes were collected.
    requests: usize,
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: nothing is under way in it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

/// Mechanism by which this process gives signals.
#[derive(Debug)]
enum Signals {
    Context(Context),
    Ring(Ring),
}

static SIGNALS: OnceLock<Mutex<Signals>> = OnceLock::new();

/// Checks that this process can signal event descriptors.
///
/// # Errors
/// The kernel permits this process neither asynchronous I/O nor io_uring.
pub(crate) fn prepare() -> io::Result<()> {
    signals().map(|_| ())
}

fn signals() -> io::Result<&'static Mutex<Signals>> {
    if let Some(signals) = SIGNALS.get() {
        return Ok(signals);
    }
    // If another thread was first, its signals are used, and these end.
    let made = Mutex::new(Signals::of(Context::new(), Ring::new)?);
    Ok(SIGNALS.get_or_init(|| made))
}

/// Adds one to the counter of an event descriptor, unless it is full. Returns whether the kernel
/// took the request.
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
        // SAFETY: the kernel writes the new context's number to `id`.
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
        // SAFETY: the one pointer is to a request, which the kernel copies. It reads no bytes, so
        // that its buffer may be null.
        1 == unsafe { libc::syscall(libc::SYS_io_submit, self.id, one, requests.as_mut_ptr()) }
    }

    /// Takes the outcomes of all requests, which are done, so that there is room for others.
    fn collect(&mut self) {
        let mut outcomes = [Outcome::default(); REQUESTS_MAX];
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let most = libc::c_long::try_from(REQUESTS_MAX).unwrap_or(1);
        let none: libc::c_long = 0;
        // SAFETY: the kernel writes at most as many outcomes as there is room for.
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

    /// A local user has taken all of `fs.aio-max-nr`: signals are still given, without waiting.
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
        // A full counter of a blocking descriptor.
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
