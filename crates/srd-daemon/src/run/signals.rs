//! Signals: SIGTERM and SIGINT end the daemon in order, SIGHUP makes it read its configuration
//! again.

use std::thread;

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigSet, Signal};

use crate::config::Config;
use crate::control::Loader;
use crate::plane::{Command, PlaneHandle};

fn ours() -> SigSet {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set
}

/// Blocks the signals in this thread and in those that it starts, until a thread waits for them.
pub(super) fn hold() {
    // Only an invalid argument could make this call fail.
    let _ = ours().thread_block();
}

/// Starts the thread that waits for the signals.
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
    let load = |_: &Config| loader().map_err(|error| error.to_string());
    match plane.change(load) {
        Ok(Ok(report)) => tracing::info!("read the configuration again: {report}"),
        Ok(Err(error)) => tracing::error!("the configuration stays as it was: {error}"),
        Err(error) => tracing::error!("the configuration stays as it was: {error}"),
    }
}
