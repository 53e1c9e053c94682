//! A fabric that goes away with the process: on drop, on panic, and on Ctrl-C and its kin.
//!
//! After SIGKILL nothing can run; then the next `up` or `down` of the same name cleans up.
//! A process that calls `std::process::exit` must drop its guards first.

use crate::config::FabricConfig;
use crate::fabric::{DownReport, Fabric};
use crate::signals::{self, CleanupId};
use crate::state::Owner;
use anyhow::Result;
use std::ops::Deref;

/// A fabric that is removed when this is dropped or when SIGINT, SIGTERM, SIGHUP or SIGQUIT ends
/// the process.
#[derive(Debug)]
pub struct FabricGuard {
    fabric: Fabric,
    cleanup: Option<CleanupId>,
}

impl Fabric {
    /// Builds a fabric that does not outlive the guard, nor this process.
    pub fn up_guarded(config: FabricConfig) -> Result<FabricGuard> {
        config.validate()?;
        let owner = Owner::this_process()?;
        let name = config.name_prefix.clone();
        // Before the first namespace exists: a signal may come half-way. It removes the fabric
        // only if it is ours, so an `up` that is refused harms nobody.
        let cleanup = signals::on_termination(move || {
            if let Err(error) = Fabric::down_if_owned(&name, owner) {
                eprintln!("fabric `{name}` is left behind: {error:#}");
            }
        })?;
        match Fabric::build(config, Some(owner)) {
            Ok(fabric) => Ok(FabricGuard { fabric, cleanup: Some(cleanup) }),
            Err(error) => {
                signals::forget(cleanup);
                Err(error)
            }
        }
    }
}

impl FabricGuard {
    /// Removes the fabric now and says what was removed.
    pub fn down(mut self) -> Result<DownReport> {
        if let Some(cleanup) = self.cleanup.take() {
            signals::forget(cleanup);
        }
        Fabric::down_by_name(self.fabric.name())
    }
}

impl Deref for FabricGuard {
    type Target = Fabric;

    fn deref(&self) -> &Fabric {
        &self.fabric
    }
}

impl Drop for FabricGuard {
    fn drop(&mut self) {
        let Some(cleanup) = self.cleanup.take() else { return };
        signals::forget(cleanup);
        if let Err(error) = Fabric::down_by_name(self.fabric.name()) {
            tracing::error!("fabric `{}` is left behind: {error:#}", self.fabric.name());
        }
    }
}
