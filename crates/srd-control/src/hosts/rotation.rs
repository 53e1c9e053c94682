//! Decisions about the identity of the controller, by which hosts recognize it.
//!
//! ```text
//!   begin    the store has the present identity and the next one; controllers show both
//!   confirm  a host has stored both, and accepts both
//!   finish   the next identity is the only one
//!   cancel   the present identity is the only one
//! ```
//!
//! Each step is one transaction, which all controllers of the state follow. So a change of the
//! identity goes on after an end of the controllers, and needs no process that conducts it. Until
//! the end of the change, a host that was away meanwhile recognizes its controller by the present
//! identity, and stores the next one.

use srd_enrol::{ControllerIdentities, Fingerprint, Identity, Refusal, RefusalKind};

use super::decide::{Decision, refuse};
use super::record::{HOST, HostRecord, IDENTITY, IdentityRecord, TOKEN, TokenRecord, put};
use super::table::Table;

/// End of a change of the identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdentityChange {
    /// Fingerprint of the identity in use from now on.
    pub present: Fingerprint,
    /// Hosts that do not accept it. They have to enrol again.
    pub excluded: Vec<String>,
    /// Tokens that were removed, because they name the other identity.
    pub tokens: Vec<String>,
}

impl Table {
    /// Hosts that have not stored the next identity of the controller; none if there is no next
    /// identity.
    pub fn without_next_identity(&self) -> Vec<String> {
        let Some(next) = self.next_identity.as_ref().map(Identity::fingerprint) else {
            return Vec::new();
        };
        let all = self.hosts.iter().filter(|(_, host)| host.next_controller != Some(next));
        all.map(|(name, _)| name.clone()).collect()
    }

    /// Begins a change of the identity. If one is in progress, nothing changes.
    ///
    /// # Errors
    /// If the controller accepts no hosts, or the kernel gives no random bytes.
    pub fn begin_identity(&self) -> Decision<()> {
        let present = self.present_identity()?;
        if self.next_identity.is_some() {
            return Ok((Vec::new(), ()));
        }
        let next =
            Identity::draw().map_err(|error| Refusal::new(RefusalKind::Unavailable, error))?;
        let record = IdentityRecord { key: present.expose(), next: Some(next.expose()) };
        Ok((vec![put(IDENTITY, &record)], ()))
    }

    /// Records that a host has stored these identities.
    ///
    /// # Errors
    /// If there is no such host.
    pub fn confirm_identity(
        &self,
        host: Fingerprint,
        stored: ControllerIdentities,
    ) -> Decision<()> {
        let (name, record) = self.known(host)?;
        let is_known = record.next_controller == stored.next && !record.has_only_next;
        if stored.next.is_none() || is_known || self.controller() != Some(stored) {
            return Ok((Vec::new(), ()));
        }
        let new =
            HostRecord { next_controller: stored.next, has_only_next: false, ..record.clone() };
        Ok((vec![put(format!("{HOST}{name}"), &new)], ()))
    }

    /// Makes the next identity the only one. With `excludes`, also if hosts have not stored it.
    ///
    /// # Errors
    /// If no change is in progress, or hosts have not stored the next identity.
    pub fn finish_identity(&self, excludes: bool) -> Decision<IdentityChange> {
        let next = self.changing_identity()?;
        let excluded = self.without_next_identity();
        if !excluded.is_empty() && !excludes {
            let what = format!(
                "these hosts have not stored the next identity: {}. They store it as soon as they \
                 are connected; a host of an earlier build needs this build. Wait for them \
                 (`srd control identity` lists them), remove hosts that are gone by `srd control \
                 hosts remove NAME`, or exclude them all by `srd control identity finish --force`: \
                 they have to enrol again",
                excluded.join(", ")
            );
            return refuse(RefusalKind::Invalid, what);
        }
        self.end_identity(next, excluded)
    }

    /// Ends the change of the identity, and keeps the present one. Hosts that have enrolled with
    /// the next one, and have not connected since, do not accept it.
    ///
    /// # Errors
    /// If no change is in progress.
    pub fn cancel_identity(&self) -> Decision<IdentityChange> {
        let next = Some(self.changing_identity()?.fingerprint());
        let lacks = |of: &HostRecord| of.has_only_next && of.next_controller == next;
        let excluded = self.hosts.iter().filter(|(_, host)| lacks(host));
        let excluded = excluded.map(|(name, _)| name.clone()).collect();
        self.end_identity(self.present_identity()?, excluded)
    }

    fn present_identity(&self) -> Result<&Identity, Refusal> {
        self.identity.as_ref().ok_or_else(|| {
            let what = "the controller accepts no hosts: start it with --hosts";
            Refusal::new(RefusalKind::Invalid, what)
        })
    }

    fn changing_identity(&self) -> Result<&Identity, Refusal> {
        self.next_identity.as_ref().ok_or_else(|| {
            let what = "the identity of the controller is not being changed: `srd control identity \
                        rotate` begins a change";
            Refusal::new(RefusalKind::Invalid, what)
        })
    }

    /// Makes an identity the only one, and removes the tokens that name another one.
    fn end_identity(&self, kept: &Identity, excluded: Vec<String>) -> Decision<IdentityChange> {
        let present = kept.fingerprint();
        // A token of an earlier build names the identity before the change.
        let named = |token: &TokenRecord| token.controller.or(self.fingerprint());
        let others = self.tokens.iter().filter(|(_, token)| named(token) != Some(present));
        let tokens: Vec<String> = others.map(|(id, _)| id.clone()).collect();
        let mut changes = vec![put(IDENTITY, &IdentityRecord { key: kept.expose(), next: None })];
        changes.extend(tokens.iter().map(|id| (format!("{TOKEN}{id}"), None)));
        Ok((changes, IdentityChange { present, excluded, tokens }))
    }
}
