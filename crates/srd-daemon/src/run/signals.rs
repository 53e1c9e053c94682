//! Processes signals: SIGTERM and SIGINT end the daemon in order, and SIGHUP makes it read its
//! configuration again; a daemon without a file ends by SIGHUP as well. If another process has
//! taken over, SIGTERM and SIGINT end that process.

use std::io;

use nix::sys::signal::{SigSet, Signal};

use crate::control::Loader;
use crate::plane::PlaneHandle;
use crate::waiting::WaitingThread;

fn ours() -> SigSet {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set
}

/// Blocks the signals in this thread and in all threads that it starts, so that only the
/// thread of [`prepare`] receives them.
pub(super) fn hold() {
    // This call can fail only if its argument is invalid.
    let _ = ours().thread_block();
}

/// Starts a thread that waits for the signals and processes them, as soon as it begins to work.
/// `has_file`: whether a file contains the configuration.
///
/// # Errors
/// If no thread can be started.
pub(super) fn prepare(
    plane: PlaneHandle,
    loader: Loader,
    has_file: bool,
) -> io::Result<WaitingThread<()>> {
    let wait = move |()| {
        loop {
            match ours().wait() {
                Ok(Signal::SIGHUP) if has_file => reload(&plane, &loader),
                Ok(signal) => {
                    tracing::info!("ends, by {signal}");
                    plane.stop_surely();
                }
                Err(_) => return,
            }
        }
    };
    WaitingThread::start("srd-signals", wait)
}

fn reload(plane: &PlaneHandle, loader: &Loader) {
    let load = || loader().map_err(|error| format!("the configuration stays as it was: {error}"));
    match plane.reload(load) {
        Ok(Ok(report)) => tracing::info!("read the configuration again: {report}"),
        Ok(Err(error)) => tracing::error!("{error}"),
        Err(error) => tracing::error!("a reload has failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::plane::tests::quiet;
    use crate::plane::{COMMANDS_MAX, Command};

    /// A daemon with a full queue of commands did not end by SIGTERM.
    #[test]
    fn regression_a_signal_to_end_waits_for_a_place_in_the_queue() {
        let (handle, commands) = quiet();
        for _ in 0..COMMANDS_MAX {
            let (reply, _) = crate::plane::oneshot();
            handle.command(Command::Describe { reply }).unwrap();
        }
        let waits = thread::spawn(move || handle.stop_surely());
        let mut received = (0..=COMMANDS_MAX).map(|_| commands.recv().unwrap());
        assert!(received.any(|command| matches!(command, Command::Stop)));
        waits.join().unwrap();
    }
}
