//! Processes signals: SIGTERM and SIGINT end the daemon in order, and SIGHUP makes it read its
//! configuration again; a daemon without a file ends by SIGHUP as well. If another process has
//! taken over, SIGTERM and SIGINT end that process.

use std::thread;

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigSet, Signal};

use crate::control::Loader;
use crate::plane::PlaneHandle;

fn ours() -> SigSet {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set
}

/// Blocks the signals in this thread and in all threads that it starts, so that only [`serve`]
/// receives them.
pub(super) fn hold() {
    // This call can fail only if its argument is invalid.
    let _ = ours().thread_block();
}

/// Starts a thread that waits for the signals and processes them. `has_file`: whether a file
/// contains the configuration.
pub(super) fn serve(plane: PlaneHandle, loader: Loader, has_file: bool) -> Result<()> {
    let wait = move || {
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
    let thread = thread::Builder::new().name("srd-signals".into()).spawn(wait);
    thread.context("cannot start a thread")?;
    Ok(())
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
    use super::*;
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
