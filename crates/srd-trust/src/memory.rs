//! Secrets that stay out of core dumps.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Has the kernel write no core file of this process, and lets none but root look into its memory.
/// A program that it starts has its own setting. A change of the user sets it to what
/// `fs.suid_dumpable` says, which may be the opposite: call this afterwards.
///
/// # Errors
/// The system's.
pub fn forbid_core_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
