//! Waiting in the kernel: for a packet by AF_XDP or UDP, for free frames, for a call of another
//! thread, or for a time.

use std::io;
use std::os::fd::AsFd;

use srd_proto::time::{Duration, Instant};

use super::{Blocked, Kernel, XdpIo};
use crate::back_ends::io::Wait;
use crate::sys::os::{self, Interest};

/// Pause before a send is tried again if no event reports that it can succeed: a full UDP socket,
/// or frames that the device did not accept.
const RETRY: Duration = Duration::from_micros(200);
/// Pause before the kernel is notified again of frames that the interface has refused, because it
/// is down: perhaps for hours.
const REFUSED_RETRY: Duration = Duration::from_millis(10);
/// Largest number of descriptors whose readiness ends a sleep.
const INTERESTS_MAX: usize = 6;

impl XdpIo {
    /// Sleeps until a packet arrives, another thread wakes this thread, a send may succeed, or the
    /// time is `wait.until`. Returns whether a packet may have arrived.
    pub(super) fn sleep(&mut self, wait: Wait, now: Instant) -> io::Result<bool> {
        if let Some(waker) = &self.waker
            && !waker.prepare_sleep()
        {
            return Ok(false);
        }
        self.stats.sleeps += 1;
        let until = self.retry_after(wait).map_or(wait.until, |pause| wait.until.min(now + pause));
        let woken = self.sleep_announced(until, wait.writable && self.waits_for_frames());
        let called = woken.as_ref().is_ok_and(|woken| woken.called);
        if let Some(waker) = &self.waker {
            waker.finish_sleep(called);
        }
        let woken = woken?;
        if woken.at_udp {
            self.udp_look_at = Instant::ZERO;
        }
        Ok(woken.at_udp || woken.at_ring)
    }

    /// Pause before a send is tried again; `None` if no send waits for time to pass.
    fn retry_after(&self, wait: Wait) -> Option<Duration> {
        if wait.writable && self.blocked == Some(Blocked::Kernel) {
            return Some(RETRY);
        }
        self.waiting.then_some(if self.refused { REFUSED_RETRY } else { RETRY })
    }

    fn sleep_announced(&mut self, until: Instant, for_frames: bool) -> io::Result<Woken> {
        loop {
            if until != Instant::FAR_FUTURE {
                self.alarm.ring_by(until.as_nanos())?;
            }
            let mut interests = [Interest::readable(self.socket.as_fd()); INTERESTS_MAX];
            interests[1] = Interest::readable(self.alarm.fd());
            let bell = self.waker.as_ref().and_then(|waker| waker.fd());
            let arrivals = match &self.kernel {
                Kernel::Sockets(_, arrivals) => Some(arrivals.as_fd()),
                Kernel::Elsewhere(_) => None,
            };
            let watched = self.watched.as_ref().map(|fd| fd.as_fd());
            let frames = for_frames.then(|| Interest::writable(self.socket.as_fd()));
            let others = [bell, arrivals, watched].into_iter().flatten().map(Interest::readable);
            let mut count = 2;
            for interest in others.chain(frames) {
                interests[count] = interest;
                count += 1;
            }
            let ready = os::wait(&mut interests[..count], None)?;
            let udp_place = 2 + usize::from(bell.is_some());
            let woken = Woken {
                at_ring: interests[0].is_ready(),
                called: bell.is_some() && interests[2].is_ready(),
                at_udp: arrivals.is_some() && interests[udp_place].is_ready(),
            };
            let rang = interests[1].is_ready();
            if rang {
                self.alarm.silence();
            }
            // Only the timer woke the thread, and too early: continue to sleep.
            if !rang || ready > 1 || self.clock.now() >= until {
                return Ok(woken);
            }
        }
    }
}

/// Causes that ended a sleep.
struct Woken {
    at_ring: bool,
    at_udp: bool,
    called: bool,
}
