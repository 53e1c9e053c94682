//! The part of the cloud that this host needs, as its controller has sent it.
//!
//! ```text
//!   sections --> tables --complete--> file cloud.toml --> card --> acknowledgement
//! ```
//!
//! A part that the card refuses is acknowledged with the reason, and applied again later. The file
//! then has the former content, with which the card starts again.
//!
//! Bounds: those of [`srd_enrol::cloud`].

use srd_enrol::message::ERROR_CHARACTERS_MAX;
use srd_enrol::{CloudTables, CloudUpdate, FromHost};

use super::state::{CLOUD, StateDirectory};
use crate::plane::PlaneHandle;

/// The part of the cloud of this host.
#[derive(Debug, Default)]
pub(super) struct CloudPart {
    tables: CloudTables,
    generation: u64,
    /// Whether the tables are complete, and the card does not use them.
    is_pending: bool,
    /// The text that the card uses; `None`: it uses the text of an earlier process.
    in_force: Option<String>,
}

impl CloudPart {
    /// Takes a section. Returns whether the update is complete.
    ///
    /// # Errors
    /// If the section is not accepted. The next session begins with a snapshot.
    pub(super) fn take(&mut self, section: CloudUpdate) -> Result<bool, String> {
        let CloudUpdate { generation, is_last, .. } = section;
        self.is_pending = false;
        self.tables.take(section)?;
        self.generation = generation;
        self.is_pending = is_last;
        Ok(is_last)
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.tables = CloudTables::default();
        self.is_pending = true;
    }

    /// Whether the tables are complete, and the card does not use them.
    pub(super) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// Makes the card use the tables. Returns the acknowledgement.
    pub(super) fn apply(&mut self, state: &StateDirectory, plane: &PlaneHandle) -> FromHost {
        let text = self.tables.text();
        let applied = match self.in_force.as_ref() == Some(&text) {
            true => Ok(()),
            false => state.write_cloud(&text).and_then(|()| plane.apply_cloud(&state.file(CLOUD))),
        };
        let generation = self.generation;
        match applied {
            Ok(()) => {
                tracing::info!("generation {generation} of the cloud is in force");
                (self.in_force, self.is_pending) = (Some(text), false);
                FromHost::CloudApplied { generation, error: None }
            }
            Err(why) => {
                tracing::error!("generation {generation} of the cloud is not in force: {why}");
                let former = self.in_force.iter().try_for_each(|text| state.write_cloud(text));
                if let Err(why) = former {
                    tracing::error!("{why}");
                }
                let error = Some(why.chars().take(ERROR_CHARACTERS_MAX).collect());
                FromHost::CloudApplied { generation, error }
            }
        }
    }
}
