//! Processes signals: SIGTERM and SIGINT end the daemon in order, and SIGHUP makes it read its
//! configuration again.

use std::thread;

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigSet, Signal};

use crate::control::Loader;
use crate::plane::{Command, PlaneHandle};

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

/// Starts a thread that waits for the signals and processes them.
pub(super) fn serve(plane: PlaneHandle, loader: Loader) -> Result<()> {
    let wait = move || {
        loop {
            match ours().wait() {
                Ok(Signal::SIGHUP) => reload(&plane, &loader),
                Ok(signal) => {
                    tracing::info!("ends, by {signal}");
                    let _ = plane.command(Command::Stop);
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
