//! A timer that a sleeping thread waits on together with its sockets.
//!
//! If the wait itself has a short timeout, the kernel programs the clock device at the start and at
//! the end of the wait: 8 us each in a virtual machine, more than the rest of a round trip
//! (`docs/perf-notes.md`). Deadlines of interactive mode only move later. So the timer keeps its
//! expiry time, sometimes expires too early, and is set again only then.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;

/// A timer descriptor on `CLOCK_BOOTTIME`, the clock of endpoints.
#[derive(Debug)]
pub(crate) struct Alarm {
    fd: OwnedFd,
    /// Expiry time; `None`: the timer is not set.
    rings_at_ns: Option<u64>,
}

impl Alarm {
    /// Returns a timer that is not set.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: takes and returns integers; the returned descriptor is new, and belongs to this
        // function.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_BOOTTIME, flags) } as isize)?;
        let fd = i32::try_from(fd).unwrap_or(-1);
        // SAFETY: `fd` was just created, and nothing else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, rings_at_ns: None })
    }

    /// Ensures that the timer expires at `at_ns` (not zero) or earlier.
    pub(crate) fn ring_by(&mut self, at_ns: u64) -> io::Result<()> {
        if self.rings_at_ns.is_some_and(|set| set <= at_ns) {
            return Ok(());
        }
        let value = libc::timespec {
            tv_sec: libc::time_t::try_from(at_ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
            // The value is below one billion, so it fits into every `c_long`.
            tv_nsec: libc::c_long::try_from(at_ns % 1_000_000_000).unwrap_or(0),
        };
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = libc::itimerspec { it_interval: once, it_value: value };
        // SAFETY: the descriptor belongs to `self`, `setting` is valid for reading, and the old
        // setting is not requested.
        let result = unsafe {
            libc::timerfd_settime(
                self.fd.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const setting,
                std::ptr::null_mut(),
            )
        };
        check(result as isize)?;
        self.rings_at_ns = Some(at_ns);
        Ok(())
    }

    /// Clears the timer after it has expired, so that its descriptor is no longer readable.
    pub(crate) fn silence(&mut self) {
        let mut count = [0u8; 8];
        // SAFETY: the descriptor belongs to `self`, and the eight bytes belong to this function.
        unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        self.rings_at_ns = None;
    }

    /// Returns the descriptor to wait on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::os::{Interest, boottime_ns, wait};

    fn rings(alarm: &Alarm) -> bool {
        wait(&mut [Interest::readable(alarm.fd())], Some(0)).unwrap() == 1
    }

    #[test]
    fn it_rings_in_time_and_is_silenced() {
        let mut alarm = Alarm::new().unwrap();
        assert!(!rings(&alarm));
        let at = boottime_ns() + 2_000_000;
        alarm.ring_by(at).unwrap();
        assert_eq!(wait(&mut [Interest::readable(alarm.fd())], None).unwrap(), 1);
        assert!(boottime_ns() >= at);
        alarm.silence();
        assert!(!rings(&alarm));
    }

    #[test]
    fn a_later_deadline_leaves_it_and_an_earlier_one_moves_it() {
        let mut alarm = Alarm::new().unwrap();
        let now = boottime_ns();
        alarm.ring_by(now + 60_000_000_000).unwrap();
        alarm.ring_by(now + 90_000_000_000).unwrap();
        assert_eq!(alarm.rings_at_ns, Some(now + 60_000_000_000));
        alarm.ring_by(1).unwrap(); // a time in the past: expires immediately
        assert!(rings(&alarm));
    }
}
