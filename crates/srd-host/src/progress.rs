//! The progress thread: it drives a [`crate::Host`] (an endpoint with its sockets) while the
//! application does other work.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use srd_proto::Instant;

use crate::core::Sink;
use crate::shared::Shared;

/// Starts the progress thread of a host. `arrivals` is readable while packets wait.
///
/// # Errors
/// An error of the operating system, if it cannot start a thread.
pub(crate) fn start<S: Sink>(
    shared: Arc<Shared<S>>,
    arrivals: OwnedFd,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name("srd-progress".into()).spawn(move || run(&shared, &arrivals))
}

fn run<S: Sink>(shared: &Shared<S>, arrivals: &OwnedFd) {
    while !shared.is_closing() {
        let now = srd_net::clock::now();
        let fresh_until = shared.fresh_until();
        if now < fresh_until {
            sleep(shared, None, fresh_until);
            continue;
        }
        let Some(round) = shared.round_for_progress() else { return };
        // After a failure the host reads no packets, so their arrival must not end the sleep.
        sleep(shared, (!round.is_broken).then_some(arrivals), round.due);
    }
}

/// Sleeps until `until`, until another thread wakes this thread, or until `arrivals`, if given, is
/// readable.
fn sleep<S: Sink>(shared: &Shared<S>, arrivals: Option<&OwnedFd>, until: Instant) {
    shared.sleeps_until(until);
    let now = srd_net::clock::now();
    let limit = (until != Instant::FAR_FUTURE).then(|| timespec(until.since(now).as_nanos()));
    let wakeup = PollFd::new(shared.wakeup(), PollFlags::IN);
    let mut fds = [wakeup.clone(), wakeup];
    if let Some(arrivals) = arrivals {
        fds[1] = PollFd::from_borrowed_fd(arrivals.as_fd(), PollFlags::IN);
    }
    // A signal ends the wait early, which is harmless.
    let _ = poll(&mut fds, limit.as_ref());
    shared.sleeps_until(Instant::ZERO);
    if fds[0].revents().contains(PollFlags::IN) {
        let _ = rustix::io::read(shared.wakeup(), &mut [0u8; 8]);
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
        // The value is below one billion.
        tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
    }
}
