//! Signals by event descriptors, without a wait.
//!
//! A front end has the same open file as the device. It can make it a blocking one, and fill its
//! counter, at any moment, so that a `write` waits until somebody reads; `pwritev2` knows no
//! `RWF_NOWAIT` for event descriptors (Linux 6.18). The kernel's own signals never wait:
//! asynchronous I/O adds one to the counter of a descriptor that a request names
//! (`IOCB_FLAG_RESFD`) when that request is done. So a signal is a read of no bytes from an empty
//! file in memory, which is done before the call returns. A counter that is full stays full.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};

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

static CONTEXT: OnceLock<Mutex<Context>> = OnceLock::new();

/// Makes sure that signals can be given.
///
/// # Errors
/// The kernel lacks asynchronous I/O, or has no room for another context.
pub(crate) fn prepare() -> io::Result<()> {
    context().map(|_| ())
}

fn context() -> io::Result<&'static Mutex<Context>> {
    if let Some(context) = CONTEXT.get() {
        return Ok(context);
    }
    let empty = memfd_create("srd-vhost-empty", MemfdFlags::CLOEXEC)?;
    let mut id: libc::c_ulong = 0;
    let requests = libc::c_long::try_from(REQUESTS_MAX).unwrap_or(1);
    // SAFETY: the kernel writes the new context's number to `id`.
    if unsafe { libc::syscall(libc::SYS_io_setup, requests, &raw mut id) } != 0 {
        let error = io::Error::last_os_error();
        let what = match error.raw_os_error() {
            Some(libc::EAGAIN) => "raise fs.aio-max-nr (sysctl)",
            _ => {
                "devices of vhost-user need a kernel with CONFIG_AIO that lets this process use it"
            }
        };
        let what = format!("asynchronous I/O of the kernel: {error}; {what}");
        return Err(io::Error::new(error.kind(), what));
    }
    let made = Mutex::new(Context { id, empty, requests: 0 });
    // If another thread was first, its context is used, and this one is closed.
    if let Err(late) = CONTEXT.set(made) {
        let late = late.into_inner().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the context was made above, and nothing is under way in it.
        unsafe { libc::syscall(libc::SYS_io_destroy, late.id) };
    }
    CONTEXT.get().ok_or_else(|| io::ErrorKind::Other.into())
}

/// Adds one to the counter of an event descriptor, unless it is full. Returns whether the kernel
/// took the request.
pub(crate) fn give(event: &impl AsFd) -> bool {
    let Ok(context) = context() else { return false };
    let mut context = context.lock().unwrap_or_else(PoisonError::into_inner);
    if context.requests == REQUESTS_MAX {
        context.collect();
    }
    context.requests += 1;
    context.submit(event)
}

impl Context {
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
