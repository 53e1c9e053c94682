//! Transactions about hosts that enrol themselves.

use std::thread;

use srd_enrol::{Refusal, RefusalKind};

use super::{ATTEMPT_PAUSE_MAX, ATTEMPTS_MAX, Control};
use crate::hosts::decide::Decision;
use crate::hosts::table::{Hosts, Table};
use crate::store::CommitError;

impl Control {
    /// Returns the hosts, which later transactions change.
    pub fn hosts(&self) -> Hosts {
        self.cloud.hosts.clone()
    }

    /// Marks the instances of a host as stopped, and removes the host, in one transaction. Returns
    /// these instances. If it fails, nothing has changed.
    ///
    /// # Errors
    /// If there is no such host, or the store fails.
    pub fn remove_host(&mut self, name: &str) -> Result<Vec<String>, Refusal> {
        for attempt in 1..=ATTEMPTS_MAX {
            self.follow().map_err(unavailable)?;
            let (changes, ()) = self.cloud.hosts.table().remove(name)?;
            let why = format!("the host {name} was removed");
            let stopped = self.running_on(|host| host == name, &why);
            match self.commit_stopped(&stopped, changes) {
                Ok(()) => return Ok(stopped.into_iter().map(|(_, id, _)| id).collect()),
                Err(CommitError::Conflict) => thread::sleep(ATTEMPT_PAUSE_MAX * attempt),
                Err(error) => return Err(unavailable(error.to_string())),
            }
        }
        Err(unavailable(CONTENDED.to_owned()))
    }

    /// Makes the changes of a decision as one transaction. If another controller has changed the
    /// state, the decision is made again.
    ///
    /// # Errors
    /// The refusal of the decision, or the error of the store.
    pub fn decide<T>(
        &mut self,
        mut decide: impl FnMut(&Table) -> Decision<T>,
    ) -> Result<T, Refusal> {
        for attempt in 1..=ATTEMPTS_MAX {
            self.follow().map_err(unavailable)?;
            let (changes, result) = decide(&self.cloud.hosts.table())?;
            if changes.is_empty() {
                return Ok(result);
            }
            match self.store.commit(changes.clone()) {
                Ok(()) => {
                    for (key, value) in changes {
                        self.cloud.hosts.read(&key, value.as_deref()).map_err(unavailable)?;
                    }
                    return Ok(result);
                }
                Err(CommitError::Conflict) => thread::sleep(ATTEMPT_PAUSE_MAX * attempt),
                Err(error) => return Err(unavailable(error.to_string())),
            }
        }
        Err(unavailable(CONTENDED.to_owned()))
    }
}

/// Cause of a failure after [`ATTEMPTS_MAX`] conflicts.
const CONTENDED: &str = "other controllers change the state without a pause";

fn unavailable(why: String) -> Refusal {
    Refusal::new(RefusalKind::Unavailable, format!("the controller cannot store it: {why}"))
}
