//! Access keys, and the verification of signatures.
//!
//! The keys of [`Access::Local`] are a part of the state. The operator makes another one,
//! deactivates the former one, and deletes it, while the servers run. Each request with a valid
//! signature reads the store before its key counts, so a key that any controller has deactivated is
//! refused by all of them.
//!
//! Bounds: an account has at most [`KEYS_MAX`] keys. With [`Access::AnyCredentials`], requests
//! belong to at most [`ACCOUNTS_MAX`] accounts. Signatures of unknown keys lead to at most
//! `STRANGER_READS_MAX` reads of the store in a second of the monotonic clock.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{ATTEMPTS_MAX, Access, Control, TRIAL_ACCOUNT, records, unavailable};
use crate::error::{ApiError, ApiResult};
use crate::http::HttpRequest;
use crate::regions;
use crate::sign::{DrawnKey, KeyEntry, Keys, Scope, Signature};
use crate::store::CommitError;

/// Largest number of access keys of an account, as for a user of IAM.
pub const KEYS_MAX: usize = 2;
/// Largest number of accounts with objects of a server that accepts any credentials.
pub const ACCOUNTS_MAX: usize = 16;
/// Number of digits of an account.
const ACCOUNT_DIGITS: usize = 12;
/// Largest number of reads of the store in [`STRANGER_PERIOD`] for signatures of unknown keys.
const STRANGER_READS_MAX: u32 = 10;
/// Period of the bound of reads.
const STRANGER_PERIOD: Duration = Duration::from_secs(1);

/// Reads of the store for signatures of unknown keys: the begin of the present period, and their
/// number in it. The monotonic clock measures the period: the time of the machine may stand still,
/// be set back, or be set again and again.
#[derive(Debug, Default)]
pub(super) struct StrangerReads {
    began: Option<Instant>,
    count: u32,
}

impl StrangerReads {
    /// Counts a read. Returns whether it is within the bound.
    fn admit(&mut self, now: Instant) -> bool {
        let is_over = |began: Instant| now.saturating_duration_since(began) >= STRANGER_PERIOD;
        if self.began.is_none_or(is_over) {
            *self = Self { began: Some(now), count: 0 };
        }
        let is_admitted = self.count < STRANGER_READS_MAX;
        self.count += u32::from(is_admitted);
        is_admitted
    }
}

/// Change of a key of the store: its identifier, and its new record, or `None` to delete it.
type Change = (String, Option<String>);

impl Control {
    /// Returns the oldest active access key of the store that [`Access::Local`] accepts.
    pub fn key(&self) -> Option<DrawnKey> {
        self.cloud.keys.of(TRIAL_ACCOUNT)
    }

    /// Draws an access key, unless the store contains an active one.
    pub(super) fn draw_key(&mut self, now: u64) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            if self.key().is_some() {
                return Ok(());
            }
            let key = DrawnKey::draw()?;
            let mut keys = self.cloud.keys.clone();
            keys.insert(&key, TRIAL_ACCOUNT, now);
            match self.store.commit(vec![(records::access_key(&key.id), keys.record(&key.id))]) {
                Ok(()) => self.cloud.keys = keys,
                Err(CommitError::Conflict) => drop(self.take()?),
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("other controllers change the state without a pause".to_owned())
    }

    /// Returns the access keys, the oldest one first.
    ///
    /// # Errors
    /// If the keys are not a part of the state, or the store cannot be read.
    pub fn access_keys(&mut self) -> Result<Vec<KeyEntry>, String> {
        self.check_local()?;
        self.follow()?;
        Ok(self.cloud.keys.entries(TRIAL_ACCOUNT))
    }

    /// Makes another access key, which all controllers accept from now on.
    ///
    /// # Errors
    /// If there are [`KEYS_MAX`] keys already, or the store cannot be read or written.
    pub fn create_access_key(&mut self, now: u64) -> Result<DrawnKey, String> {
        self.change_keys(|keys| {
            if keys.entries(TRIAL_ACCOUNT).len() >= KEYS_MAX {
                return Err(format!(
                    "there are {KEYS_MAX} access keys already: delete one by `srd control key \
                     delete ID`"
                ));
            }
            let key = DrawnKey::draw()?;
            let mut with = keys.clone();
            with.insert(&key, TRIAL_ACCOUNT, now);
            Ok(((key.id.clone(), with.record(&key.id)), key))
        })
    }

    /// Activates or deactivates an access key. All controllers refuse requests with a key that is
    /// not active.
    ///
    /// # Errors
    /// If there is no such key, it is the only active one, or the store cannot be read or written.
    pub fn set_access_key(&mut self, id: &str, is_active: bool) -> Result<(), String> {
        self.change_keys(|keys| {
            if !is_active {
                check_unneeded(keys, id)?;
            }
            let record = keys.record_with(id, is_active).ok_or_else(|| no_key(id))?;
            Ok(((id.to_owned(), Some(record)), ()))
        })
    }

    /// Deletes an access key.
    ///
    /// # Errors
    /// As [`Self::set_access_key`].
    pub fn delete_access_key(&mut self, id: &str) -> Result<(), String> {
        self.change_keys(|keys| {
            check_unneeded(keys, id)?;
            Ok(((id.to_owned(), None), ()))
        })
    }

    /// Makes a change of the keys as one transaction.
    fn change_keys<T>(
        &mut self,
        mut decide: impl FnMut(&Keys) -> Result<(Change, T), String>,
    ) -> Result<T, String> {
        self.check_local()?;
        for _ in 0..ATTEMPTS_MAX {
            self.follow()?;
            let ((id, record), result) = decide(&self.cloud.keys)?;
            match self.store.commit(vec![(records::access_key(&id), record.clone())]) {
                Ok(()) => {
                    match record {
                        Some(record) => self.cloud.keys.read(&id, &record)?,
                        None => self.cloud.keys.remove(&id),
                    }
                    return Ok(result);
                }
                Err(CommitError::Conflict) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("other controllers change the state without a pause".to_owned())
    }

    fn check_local(&self) -> Result<(), String> {
        match self.access {
            Access::Local => Ok(()),
            _ => Err("the access key of a trial cannot be changed, and ends with the server: \
                      start it with --state in place of --trial"
                .to_owned()),
        }
    }

    /// Returns the scope and the account of a request with a valid signature. For
    /// [`Access::Local`], the changes of other controllers are taken over.
    pub(super) fn authenticate(
        &mut self,
        http: &HttpRequest,
        now: u64,
    ) -> ApiResult<(Scope, String)> {
        let signature = Signature::read(http)?;
        let account = match &self.access {
            Access::AnyCredentials => self.account_of(&signature.scope.key)?,
            Access::Local => self.verify(&signature, http, now)?,
            Access::Trial(keys) | Access::Keys(keys) => signature.verify(http, keys, now)?,
        };
        if !regions::exists(&signature.scope.region) {
            let message = "Credential should be scoped to a valid region.";
            return Err(ApiError::with_status(403, "SignatureDoesNotMatch", message));
        }
        Ok((signature.scope, account))
    }

    /// Returns the account of a key that is not verified: the key itself if it has the form of an
    /// account, and [`TRIAL_ACCOUNT`] otherwise.
    fn account_of(&self, key: &str) -> ApiResult<String> {
        if key.len() != ACCOUNT_DIGITS || !key.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(TRIAL_ACCOUNT.to_owned());
        }
        let accounts = self.cloud.regions.keys().map(|(account, _)| account.as_str());
        let accounts: BTreeSet<&str> = accounts.collect();
        if accounts.len() < ACCOUNTS_MAX || accounts.contains(key) {
            return Ok(key.to_owned());
        }
        let message =
            format!("{ACCOUNTS_MAX} accounts have objects, and POST /reset deletes all objects");
        Err(ApiError::with_status(403, "AuthFailure", message))
    }

    /// Whether a request that was authenticated has the changes of other controllers.
    pub(super) fn has_followed(&self) -> bool {
        matches!(self.access, Access::Local)
    }

    /// Verifies a signature by the keys of the store.
    fn verify(&mut self, signature: &Signature, http: &HttpRequest, now: u64) -> ApiResult<String> {
        let id = &signature.scope.key;
        let verified = signature.verify(http, &self.cloud.keys, now);
        if verified.is_err() {
            // Another controller may have made the key, or activated it. A signature that is wrong
            // for an active key is refused without a read.
            if self.cloud.keys.is_active(id) || !self.stranger_reads.admit(Instant::now()) {
                return verified;
            }
        }
        self.follow().map_err(unavailable)?;
        match verified {
            // The secret of a key never changes.
            Ok(account) if self.cloud.keys.is_active(id) => Ok(account),
            _ => signature.verify(http, &self.cloud.keys, now),
        }
    }
}

fn no_key(id: &str) -> String {
    format!("there is no access key `{id}`: `srd control key list` lists them")
}

/// Checks that a key exists, and that another one is active: without an active key, the API could
/// not be used.
fn check_unneeded(keys: &Keys, id: &str) -> Result<(), String> {
    let all = keys.entries(TRIAL_ACCOUNT);
    if !all.iter().any(|key| key.id == id) {
        return Err(no_key(id));
    }
    if all.iter().any(|key| key.is_active && key.id != id) {
        return Ok(());
    }
    Err(format!(
        "no other access key is active: make one by `srd control key create`, or activate one by \
         `srd control key activate ID`, before `{id}` is deactivated or deleted"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_cause_a_bounded_number_of_reads() {
        let mut reads = StrangerReads::default();
        let began = Instant::now();
        for periods in 0..3 {
            let now = began + STRANGER_PERIOD * periods;
            let admitted = (0..100).filter(|_| reads.admit(now)).count();
            assert_eq!(admitted, STRANGER_READS_MAX as usize);
        }
    }

    /// With a clock that went back and forth, each request of a stranger led to a read. With a
    /// clock that stood still, none did any more.
    #[test]
    fn regression_a_clock_that_goes_back_gives_strangers_no_more_reads() {
        let mut reads = StrangerReads::default();
        let began = Instant::now() + STRANGER_PERIOD;
        let back = began.checked_sub(STRANGER_PERIOD).unwrap();
        let times = [began, back].into_iter().cycle().take(100);
        let admitted = times.filter(|now| reads.admit(*now)).count();
        assert_eq!(admitted, STRANGER_READS_MAX as usize);
        assert!(reads.admit(began + STRANGER_PERIOD), "the next period has begun");
    }
}
