//! The state of the store that this controller has not made itself: at its start, and while other
//! controllers use the store.
//!
//! The machines of instances follow this state. An instance whose machine does not start is marked
//! as stopped.

use super::{ATTEMPTS_MAX, Control, records};
use crate::actions;
use crate::machines::{self, RUNNING};
use crate::state::Instance;
use crate::store::{CommitError, KeyChange, News};
use crate::tls::Authority;

/// An instance that is to be marked as stopped, because its machine did not start or its host was
/// removed: its account and region, its identifier, and the cause.
pub(super) type Failed = ((String, String), String, String);

impl Control {
    /// Takes over the changes of other controllers.
    ///
    /// # Errors
    /// If the store cannot be read or written, or contains something else than a state.
    pub fn follow(&mut self) -> Result<(), String> {
        self.recover();
        let failed = self.take()?;
        self.mark(failed)
    }

    /// Stops all machines if another controller has taken them over, and returns whether this is
    /// so. From then on, requests are refused.
    pub fn give_up_machines(&mut self) -> bool {
        let is_lost = self.store.has_lost_machines();
        if is_lost {
            self.recover();
            self.machines.clear();
        }
        is_lost
    }

    /// Starts the machines of all instances that run according to the store.
    pub(super) fn resume(&mut self) -> Result<(), String> {
        let mut failed = Vec::new();
        for (at, region) in &self.cloud.regions {
            let running = region.instances.iter().filter(|i| i.state.code == RUNNING);
            let running: Vec<String> = running.map(|i| i.instance_id.clone()).collect();
            let why = machines::enter(self.machines.as_mut(), region, &running);
            failed.extend(why.into_iter().map(|(id, why)| (at.clone(), id, why)));
        }
        // Earlier versions removed a host and stopped its instances in two transactions.
        let hosts = self.hosts();
        let is_gone = |host: &str| !hosts.table().has(host);
        failed.extend(self.running_on(is_gone, "its host was removed"));
        self.mark(failed)
    }

    /// Returns the authority of the store that issues certificates of its servers. It is drawn
    /// unless the store contains one.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub fn authority(&mut self) -> Result<Authority, String> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(authority) = &self.cloud.authority {
                return Ok(authority.clone());
            }
            let authority = Authority::draw()?;
            let change = (records::AUTHORITY.to_owned(), Some(authority.record()?));
            match self.store.commit(vec![change]) {
                Ok(()) => self.cloud.authority = Some(authority),
                Err(CommitError::Conflict) => self.follow()?,
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("other controllers change the state without a pause".to_owned())
    }

    /// Returns the authority that issues certificates of the servers; `None` if no server has
    /// needed one.
    pub fn present_authority(&self) -> Option<&Authority> {
        self.cloud.authority.as_ref()
    }

    /// Replaces the authority. Each server of the state takes another certificate, and clients have
    /// to trust the certificate of the new authority.
    ///
    /// # Errors
    /// If there is no authority, or the store cannot be read or written.
    pub fn rotate_authority(&mut self) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            self.follow()?;
            if self.cloud.authority.is_none() {
                return Err("no server of this state has a certificate of its own authority".into());
            }
            let authority = Authority::draw()?;
            let change = (records::AUTHORITY.to_owned(), Some(authority.record()?));
            match self.store.commit(vec![change]) {
                Ok(()) => {
                    self.cloud.authority = Some(authority);
                    return Ok(());
                }
                Err(CommitError::Conflict) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("other controllers change the state without a pause".to_owned())
    }

    /// Takes over the changes of other controllers, and returns the instances whose machines did
    /// not start.
    pub(super) fn take(&mut self) -> Result<Vec<Failed>, String> {
        let news = match self.is_stale {
            true => News::All(self.store.load()?),
            false => self.store.refresh()?,
        };
        let changes = match news {
            News::Changes(changes) => changes,
            News::All(all) => records::difference(&self.cloud, all)?,
        };
        // Changes that are taken halfway are undone by the next request, which loads all.
        self.is_stale = true;
        records::follow(&mut self.cloud, changes, &mut self.ids)?;
        let mut failed = Vec::new();
        for (at, region) in &mut self.cloud.regions {
            if !region.is_changed() {
                continue;
            }
            let started = machines::started(region).map(|i| i.instance_id.clone());
            let started: Vec<String> = started.collect();
            let why = machines::enter(self.machines.as_mut(), region, &started);
            failed.extend(why.into_iter().map(|(id, why)| (at.clone(), id, why)));
            machines::finish(self.machines.as_mut(), region);
            region.commit();
            self.is_unsettled = true;
        }
        self.is_stale = false;
        Ok(failed)
    }

    /// Marks instances whose machines did not start as stopped.
    pub(super) fn mark(&mut self, mut failed: Vec<Failed>) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            if failed.is_empty() {
                return Ok(());
            }
            match self.commit_stopped(&failed, Vec::new()) {
                Ok(()) => return Ok(()),
                Err(CommitError::Conflict) => failed.extend(self.take()?),
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("other controllers change the state without a pause".to_owned())
    }

    /// Marks instances as stopped, and makes changes of hosts, in one transaction. If it fails,
    /// nothing has changed.
    pub(super) fn commit_stopped(
        &mut self,
        stopped: &[Failed],
        of_hosts: Vec<KeyChange>,
    ) -> Result<(), CommitError> {
        let committed = self.mark_all(stopped).map_err(CommitError::Failed);
        let committed = committed.and_then(|mut changes| {
            changes.extend(of_hosts.iter().cloned());
            self.store.commit(changes)
        });
        if committed.is_err() {
            self.recover();
            return committed;
        }
        self.is_unsettled = true;
        for region in self.cloud.regions.values_mut().filter(|region| region.is_changed()) {
            region.commit();
            if let Err(why) = self.machines.apply(region) {
                self.machines.report(&format!("{}: {why}", region.name));
            }
        }
        for (_, id, why) in stopped {
            self.machines.report(&format!("{id} is marked as stopped: {why}"));
        }
        let read = of_hosts
            .iter()
            .try_for_each(|(key, value)| self.cloud.hosts.read(key, value.as_deref()));
        read.map_err(|why| {
            self.is_stale = true;
            CommitError::Unknown(why)
        })
    }

    /// Marks instances as stopped, and returns the changes of the store.
    fn mark_all(&mut self, stopped: &[Failed]) -> Result<Vec<KeyChange>, String> {
        for (at, id, why) in stopped {
            if let Some(region) = self.cloud.regions.get_mut(at) {
                actions::mark_stopped(region, id, why).map_err(|error| error.to_string())?;
            }
        }
        records::changes(&self.cloud)
    }

    /// The running instances of hosts that meet a condition.
    pub(super) fn running_on(&self, is_meant: impl Fn(&str) -> bool, why: &str) -> Vec<Failed> {
        let mut found = Vec::new();
        for (at, region) in &self.cloud.regions {
            let is_there =
                |i: &&Instance| i.state.code == RUNNING && i.host.as_deref().is_some_and(&is_meant);
            let ids = region.instances.iter().filter(is_there).map(|i| i.instance_id.clone());
            found.extend(ids.map(|id| (at.clone(), id, why.to_owned())));
        }
        found
    }
}
