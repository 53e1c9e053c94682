//! State that an application's threads and the progress thread share: the core behind its lock,
//! and the times when each of them has work to do.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};
use srd_efa::layer::{Layer, World};
use srd_net::{LocalEndpoint, NearIo, Process};
use srd_proto::{Duration, Instant};

use crate::backoff;
use crate::core::{Core, Sink};
use crate::memory::UserMemory;

/// Time without a poll of the application after which the progress thread does the work.
pub(crate) const STALE: Duration = Duration::from_millis(1);

/// Reason why a call was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The host was opened in the parent process, before the fork that created this process.
    Forked,
    /// The host was closed.
    Closed,
    /// The sockets were lost; the sink was notified of the reason.
    Broken,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forked => {
                "the endpoint belongs to the process that forked this one: open another after fork"
            }
            Self::Closed => "the endpoint was closed",
            Self::Broken => "the endpoint's sockets were lost",
        })
    }
}

impl std::error::Error for CallError {}

/// Parts of the host that a call may use.
#[derive(Debug)]
pub struct Call<'a, S: Sink> {
    /// The layer: usually the Messaging Layer.
    pub layer: &'a mut S::Layer,
    /// Registrations of the application's memory.
    pub memory: &'a mut UserMemory,
    /// The caller's receiver of completions.
    pub sink: &'a mut S,
    local: &'a mut LocalEndpoint<NearIo>,
}

impl<S: Sink> Call<'_, S> {
    /// Returns the layer, the environment that calls to the layer borrow, and the caller's receiver
    /// of completions.
    pub fn parts(&mut self) -> (&mut S::Layer, World<'_>, &mut S) {
        let (endpoint, now) = self.local.core_mut();
        (self.layer, World { now, endpoint, memory: self.memory }, self.sink)
    }
}

/// Result of a round of the progress thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundEnd {
    /// Time when the next round is due.
    pub(crate) due: Instant,
    /// Whether nothing is in progress.
    pub(crate) is_quiet: bool,
    /// Whether the host has failed: from then on it reads no packets.
    pub(crate) is_broken: bool,
}

/// State of a host that its callers and its progress thread share.
#[derive(Debug)]
pub(crate) struct Shared<S: Sink> {
    pub(crate) core: Mutex<Option<Core<S>>>,
    pub(crate) process: Process,
    /// Time of the application's last poll: nanoseconds on the clock of the transport.
    polled_at_ns: AtomicU64,
    /// Time when messages that wait to share a datagram are sent.
    coalesce_until_ns: AtomicU64,
    /// Time until which the progress thread sleeps if nothing arrives; zero while it is awake.
    sleeps_until_ns: AtomicU64,
    /// Whether the progress thread has armed the descriptor that it sleeps on, and no caller has
    /// polled since. Changed under the lock.
    armed: AtomicBool,
    pub(crate) closing: AtomicBool,
    /// Number of rounds of the progress thread.
    #[cfg(test)]
    rounds: AtomicU64,
    /// Descriptor that ends the progress thread's sleep.
    wakeup: OwnedFd,
}

impl<S: Sink> Shared<S> {
    /// Makes the shared state of a host around its core. The progress thread counts as awake.
    pub(crate) fn new(core: Core<S>) -> io::Result<Self> {
        Ok(Self {
            core: Mutex::new(Some(core)),
            process: Process::current(),
            polled_at_ns: AtomicU64::new(0),
            coalesce_until_ns: AtomicU64::new(u64::MAX),
            sleeps_until_ns: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            #[cfg(test)]
            rounds: AtomicU64::new(0),
            wakeup: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// Locks the core; `None` after the host was closed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Core<S>>> {
        self.core.lock().unwrap_or_else(|poisoned| {
            // A thread panicked in the middle of a call: the core may hold an incomplete change, so
            // it cannot be used.
            let mut locked = poisoned.into_inner();
            if let Some(core) = locked.as_mut() {
                core.fail(&io::Error::other("a thread panicked while it used the endpoint"));
            }
            self.core.clear_poison();
            locked
        })
    }

    pub(crate) fn call<R>(&self, f: impl FnOnce(Call<'_, S>) -> R) -> Result<R, CallError> {
        if !self.process.is_current() {
            return Err(CallError::Forked);
        }
        let mut locked = self.lock();
        let core = locked.as_mut().ok_or(CallError::Closed)?;
        if core.broken {
            return Err(CallError::Broken);
        }
        let Core { local, layer, memory, sink, .. } = core;
        let result = f(Call { layer, memory, sink, local });
        if core.flush() {
            self.called(core);
        }
        Ok(result)
    }

    /// Must be called after each call or poll. If the call has created work that is due before the
    /// progress thread wakes up, wakes it. While the application continues to poll, this happens
    /// only once.
    fn called(&self, core: &Core<S>) {
        let now = core.local.last_look();
        self.coalesce_until_ns.store(core.coalesce_until.as_nanos(), Ordering::Relaxed);
        let wanted = core.due().max(now + STALE).min(core.coalesce_until);
        if self.sleeps_until_ns.load(Ordering::SeqCst) > wanted.as_nanos() {
            self.wake();
        }
    }

    /// Does a round for the progress thread. Returns `None` if the host was closed.
    pub(crate) fn round_for_progress(&self) -> Option<RoundEnd> {
        #[cfg(test)]
        self.rounds.fetch_add(1, Ordering::Relaxed);
        let mut locked = self.lock();
        let core = locked.as_mut()?;
        if core.broken {
            self.sleeps_until(Instant::FAR_FUTURE);
            return Some(RoundEnd { due: Instant::FAR_FUTURE, is_quiet: true, is_broken: true });
        }
        core.round();
        self.coalesce_until_ns.store(core.coalesce_until.as_nanos(), Ordering::Relaxed);
        // A packet that arrived between the round and the arming would not end a sleep.
        let due = core.due().min(core.probe_due());
        let due = if core.local.arm() { due } else { Instant::ZERO };
        self.armed.store(true, Ordering::Relaxed);
        // Published under the lock: a call that makes work due earlier either came before this
        // round, or reads the time and wakes the progress thread.
        self.sleeps_until(due);
        let is_quiet = core.broken || core.layer.is_quiet();
        Some(RoundEnd { due, is_quiet, is_broken: core.broken })
    }

    /// Returns the time until which the application's last poll prevents the progress thread from
    /// working; a past time if the application has not polled for long. Calls that only submit
    /// operations do not count, because they receive nothing.
    pub(crate) fn fresh_until(&self) -> Instant {
        let coalesce_until = Instant::from_nanos(self.coalesce_until_ns.load(Ordering::Relaxed));
        match self.polled_at_ns.load(Ordering::Relaxed) {
            0 => Instant::ZERO,
            at => coalesce_until.min(Instant::from_nanos(at) + STALE),
        }
    }

    /// Records the time until which the progress thread sleeps.
    pub(crate) fn sleeps_until(&self, until: Instant) {
        self.sleeps_until_ns.store(until.as_nanos(), Ordering::SeqCst);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Returns the number of rounds of the progress thread.
    #[cfg(test)]
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Whether an arriving packet wakes the progress thread.
    #[cfg(test)]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    pub(crate) fn wakeup(&self) -> &OwnedFd {
        &self.wakeup
    }

    /// Ends the current or the next sleep of the progress thread. If the write fails because the
    /// counter is full, the thread wakes up as well.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }

    /// Does one round of work on the application's thread, without waiting. Yields the processor
    /// core if no packet has arrived for some time.
    pub(crate) fn poll(&self) {
        if !self.process.is_current() {
            return;
        }
        let Some((now, arrived)) = self.round_for_caller() else { return };
        if backoff::PROCESS.should_yield(now, arrived) {
            backoff::yield_core();
        }
    }

    /// Does a round for the application. Returns the time of the round, and whether a packet had
    /// arrived; `None` if the host was closed.
    fn round_for_caller(&self) -> Option<(Instant, bool)> {
        let mut locked = self.lock();
        let core = locked.as_mut()?;
        let packets = core.round();
        // The round has disarmed the descriptor that would wake the progress thread.
        if self.armed.swap(false, Ordering::Relaxed) {
            self.wake();
        }
        let now = core.local.last_look();
        self.polled_at_ns.store(now.as_nanos(), Ordering::Relaxed);
        self.called(core);
        Some((now, packets > 0))
    }

    /// Makes the progress thread do the work from now on, until the next poll.
    pub(crate) fn hand_over(&self) {
        self.polled_at_ns.store(0, Ordering::Relaxed);
        self.wake();
    }
}
