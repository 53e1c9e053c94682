//! Clocks, waiting, wake-ups, random bytes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::check;

/// Returns `CLOCK_MONOTONIC` in nanoseconds, the clock of the time stamps of BPF programs. It
/// stands still while the machine is suspended.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Returns `CLOCK_REALTIME` in nanoseconds since 1970.
pub(crate) fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Returns `CLOCK_BOOTTIME` in nanoseconds. This clock also counts while the machine is suspended.
pub(crate) fn boottime_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// Returns the CPU time of this process in nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to; these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    let s = u64::try_from(t.tv_sec).unwrap_or(0);
    s.saturating_mul(1_000_000_000).saturating_add(u64::try_from(t.tv_nsec).unwrap_or(0))
}

/// Returns the largest number of descriptors that the process may have.
pub(crate) fn descriptors_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure belongs to this function.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if code == 0 { limit.rlim_cur } else { u64::MAX }
}

/// Marks every descriptor from `first` on to be closed when a program is started.
pub(crate) fn close_on_exec_from(first: libc::c_uint) -> io::Result<()> {
    let (last, flags) = (libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: the call takes three integers. It closes no descriptor now, so every descriptor keeps
    // its owner.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    check(isize::try_from(result).unwrap_or(-1))?;
    Ok(())
}

/// Makes a copy of a descriptor standard error.
pub(crate) fn replace_stderr(by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes two integers. Standard error has no owner that could close it, and the
    // copy keeps its number.
    let result = unsafe { libc::dup2(by.as_raw_fd(), libc::STDERR_FILENO) };
    check(isize::try_from(result).unwrap_or(-1))?;
    Ok(())
}

/// Makes a program start with an empty signal mask.
pub(crate) fn unblock_signals(command: &mut Command) {
    let unblock = || {
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the first call initialises the set, which belongs to this closure, and the second
        // one reads it. Both calls may be made between fork and exec.
        let result = unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure allocates nothing and takes no locks.
    unsafe { command.pre_exec(unblock) };
}

/// Fills `bytes` from the kernel's generator, which blocks only before it is seeded at boot.
pub(crate) fn random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: pointer and length describe `rest`, which this function may write.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match check(n) {
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Sets the timer slack of the calling thread to the minimum, instead of the default of 50 us. A
/// failure is ignored: timers only expire later.
pub(crate) fn timer_slack_minimum() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and accesses no memory of this process.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Lets the heap of this process keep up to `bytes` of unused memory. Otherwise the heap would
/// return the memory to the kernel and request it again, with a page fault for each page. Has an
/// effect with glibc only.
pub(crate) fn heap_keeps(bytes: u32) {
    #[cfg(target_env = "gnu")]
    {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: mallopt takes two integers; it locks the heap itself.
        unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, bytes) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}

/// Conditions to wait for on one descriptor, and the conditions that have occurred.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Interest<'fd> {
    poll: libc::pollfd,
    owner: std::marker::PhantomData<BorrowedFd<'fd>>,
}

impl<'fd> Interest<'fd> {
    /// Returns an interest that is ready when `fd` is readable.
    pub(crate) fn readable(fd: BorrowedFd<'fd>) -> Self {
        Self::new(fd, libc::POLLIN)
    }

    /// Returns an interest that is ready when `fd` is writable.
    pub(crate) fn writable(fd: BorrowedFd<'fd>) -> Self {
        Self::new(fd, libc::POLLOUT)
    }

    fn new(fd: BorrowedFd<'fd>, events: libc::c_short) -> Self {
        let poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
        Self { poll, owner: std::marker::PhantomData }
    }

    /// Whether a condition occurred, or the descriptor has an error, which a call on it will
    /// return.
    pub(crate) fn is_ready(&self) -> bool {
        self.poll.revents != 0
    }
}

/// Waits until one of `interests` is ready or `timeout_ns` has passed (`None`: without limit).
/// Returns the number of ready interests; a signal counts as a timeout.
pub(crate) fn wait(interests: &mut [Interest<'_>], timeout_ns: Option<u64>) -> io::Result<usize> {
    let timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        // The value is below one billion, so it fits into every `c_long`.
        tv_nsec: libc::c_long::try_from(ns % 1_000_000_000).unwrap_or(0),
    });
    let timeout_ptr = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `Interest` is a transparent pollfd, so pointer and length describe an array of
    // `pollfd` that this function may write; the timeout outlives the call; no signal mask is
    // given.
    let n = unsafe {
        libc::ppoll(
            interests.as_mut_ptr().cast(),
            interests.len() as libc::nfds_t,
            timeout_ptr,
            std::ptr::null(),
        )
    };
    match check(n as isize) {
        Ok(n) => Ok(n),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(e) => Err(e),
    }
}

/// A counter that wakes a waiting thread: an eventfd.
#[derive(Debug)]
pub(crate) struct Wake {
    file: File,
}

impl Wake {
    /// Returns a new eventfd that is not signalled.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes and returns integers; the returned descriptor is new, and belongs to this
        // function.
        let fd =
            check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } as isize)?;
        let fd = i32::try_from(fd).unwrap_or(-1);
        // SAFETY: `fd` was just created, and nothing else owns it.
        Ok(Self { file: File::from(unsafe { OwnedFd::from_raw_fd(fd) }) })
    }

    /// Wakes the waiting thread, or ends its next wait.
    pub(crate) fn signal(&self) {
        // Fails only if the counter is full; then the eventfd is signalled already.
        let _ = (&self.file).write(&1u64.to_ne_bytes());
    }

    /// Resets the counter to zero.
    pub(crate) fn reset(&self) {
        let _ = (&self.file).read(&mut [0; 8]);
    }

    /// Returns the descriptor to wait on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance_and_random_bytes_differ() {
        let before = monotonic_ns();
        assert!(monotonic_ns() >= before && before > 0);
        assert!(realtime_ns() > 1_500_000_000_000_000_000);
        let (mut a, mut b) = ([0; 32], [0; 32]);
        random(&mut a).unwrap();
        random(&mut b).unwrap();
        assert_ne!(a, b);
    }

    #[test]
    fn a_wait_ends_by_time_and_by_signal() {
        let wake = Wake::new().unwrap();
        let start = monotonic_ns();
        let mut interest = [Interest::readable(wake.fd())];
        assert_eq!(wait(&mut interest, Some(2_000_000)).unwrap(), 0);
        assert!(monotonic_ns() - start >= 2_000_000);
        wake.signal();
        assert_eq!(wait(&mut interest, None).unwrap(), 1);
        assert!(interest[0].is_ready());
        wake.reset();
        assert_eq!(wait(&mut interest, Some(0)).unwrap(), 0);
    }
}
