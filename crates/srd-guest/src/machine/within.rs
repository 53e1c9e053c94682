//! Work in the network namespace of a file.

use std::fs::File;
use std::os::fd::AsFd;
use std::thread;

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs `work` in a namespace, on a separate thread.
pub(crate) fn within<T: Send>(file: &File, work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let inside = move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            anyhow::Ok(work())
        };
        let inside = thread::Builder::new().spawn_scoped(scope, inside);
        let inside = inside.context("a thread for a namespace")?;
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
