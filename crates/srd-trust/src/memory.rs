//! Secrets that stay out of core dumps.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Switches core files of this process off, and lets only root read its memory. A program that it
/// starts has its own setting. A change of the user resets this setting to the value of
/// `fs.suid_dumpable`, which may permit core files: call this afterwards.
///
/// # Errors
/// An error of the system.
pub fn forbid_core_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
