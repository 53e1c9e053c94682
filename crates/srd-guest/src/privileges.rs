//! The process that reads packets of guests has no privileges, from before its first thread on.

use anyhow::{Context, Result, bail};
use rustix::process::{getppid, parent_process_death_signal, set_parent_process_death_signal};
use srd_trust::privileges;

/// Becomes the user `srd`, or `nobody` where there is none, if root has started this process; and
/// gives up every capability. The helper reads what only root may read.
pub(crate) fn leave() -> Result<()> {
    // A change of the user takes away the signal that comes when the parent ends (prctl(2)).
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
