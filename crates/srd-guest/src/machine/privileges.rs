//! Removal of privileges from the process that reads packets of guests, before its first thread.

use anyhow::{Context, Result, bail};
use rustix::process::{getppid, parent_process_death_signal, set_parent_process_death_signal};
use srd_trust::privileges;

/// If root has started this process, changes to the user `srd`, or to a user of no other process if
/// there is no user `srd`. Drops every capability. The helper reads the files that only root may
/// read.
pub(crate) fn leave() -> Result<()> {
    // A change of the user clears the signal at the end of the parent (prctl(2)).
    let (parent, signal) = (getppid(), parent_process_death_signal()?);
    privileges::leave_root(|| true).context("the card cannot leave root")?;
    privileges::drop_all().context("the card cannot give up privileges")?;
    if signal.is_some() {
        set_parent_process_death_signal(signal)?;
        if getppid() != parent {
            bail!("the process that has started the card has ended");
        }
    }
    Ok(())
}
