//! Transactions about hosts that enrol themselves.

use std::thread;

use srd_enrol::{Refusal, RefusalKind};

use super::{ATTEMPT_PAUSE_MAX, ATTEMPTS_MAX, Control};
use crate::hosts::decide::Decision;
use crate::hosts::table::{Hosts, Table};
use crate::machines::RUNNING;
use crate::state::Instance;
use crate::store::CommitError;

impl Control {
    /// Returns the hosts, which later transactions change.
    pub fn hosts(&self) -> Hosts {
        self.cloud.hosts.clone()
    }

    /// Marks the instances of a host as stopped, and removes the host.
    ///
    /// # Errors
    /// If there is no such host, or the store fails.
    pub fn remove_host(&mut self, name: &str) -> Result<(), Refusal> {
        let unavailable = |why: String| Refusal::new(RefusalKind::Unavailable, why);
        self.follow().map_err(unavailable)?;
        self.cloud.hosts.table().remove(name)?;
        let mut stopped = Vec::new();
        for (at, region) in &self.cloud.regions {
            let is_there =
                |i: &&Instance| i.state.code == RUNNING && i.host.as_deref() == Some(name);
            let ids = region.instances.iter().filter(is_there).map(|i| i.instance_id.clone());
            stopped.extend(ids.map(|id| (at.clone(), id, format!("the host {name} was removed"))));
        }
        self.mark(stopped).map_err(unavailable)?;
        self.decide(|table| table.remove(name))
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
        let unavailable = |why: String| {
            Refusal::new(RefusalKind::Unavailable, format!("the controller cannot store it: {why}"))
        };
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
        Err(unavailable("other controllers change the state without a pause".to_owned()))
    }
}
