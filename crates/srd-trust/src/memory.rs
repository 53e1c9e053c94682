//! Secrets that stay out of core dumps.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Disables core files of this process, and lets only root read its memory. A program that this
/// process starts has a separate setting. A change of the user resets this setting to the value of
/// `fs.suid_dumpable`, which may permit core files, so call this function after such a change.
///
/// # Errors
/// An error of the operating system, if the kernel refuses the setting.
pub fn forbid_core_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
