//! The change of the key of this host while the daemon runs.
//!
//! ```text
//!   controller: rotate --> pending.key --public key--> controller stores it --> next.key
//!   next session: offered.key, offers it --> admitted, all peers get it --> the daemon uses it
//!                                                                       --> private.key
//! ```
//!
//! When the daemon uses the key, sessions with peers end, and open again. If the controller refuses
//! the key that a session offers, the next session offers the other one of the two: the controller
//! may or may not have taken the next key before its answer was lost. If the daemon is killed in
//! the middle, the name of the file decides: `prepare` of the module `enrol` makes a key that was
//! offered the key of this host, and a key that was not offered waits for a session.

use super::{End, Follower};
use crate::control_plane::link::Link;
use crate::control_plane::state::{NEXT_KEY, OFFERED_KEY, PENDING_KEY, PRIVATE_KEY};
use crate::plane::PlaneError;
use srd_enrol::FromHost;

impl Follower {
    /// Sends the next public key to the controller, if there is one. `draws`: draws one. If that
    /// fails, the present key stays in use.
    pub(super) fn offer_key(&mut self, link: &mut Link, draws: bool) -> Result<(), End> {
        let state = &self.enrol.directory;
        let key = match draws {
            true => match state.key(PENDING_KEY) {
                Ok(key) => Some(key),
                Err(why) => {
                    tracing::error!("this host keeps its key: {why}");
                    None
                }
            },
            false => state.key_if_any(PENDING_KEY).map_err(End::State)?,
        };
        if let Some(key) = key {
            let public_key = key.public().to_string();
            link.send(&FromHost::NextKey { public_key })?;
        }
        Ok(())
    }

    /// After the controller has admitted this host: uses the key that this session has offered. A
    /// next key that it has not offered, because the controller does not have it, is offered as a
    /// new one.
    pub(super) fn adopt_key(&mut self) -> Result<(), End> {
        let state = &self.enrol.directory;
        let Some(next) = self.next.clone() else { return self.put_key_back() };
        let changed = match self.plane.rekey(next.clone()) {
            Err(PlaneError::Gone) => return Err(End::Daemon),
            Err(error) => Err(error.to_string()),
            Ok(changed) => changed,
        };
        // The next session tries again.
        changed.map_err(|why| End::State(format!("the next key is not in use: {why}")))?;
        (self.key, self.next) = (next.public(), None);
        // If this fails, the next session or the next start renames the file.
        if let Err(why) = state.rename(OFFERED_KEY, PRIVATE_KEY) {
            tracing::error!("{why}");
        }
        tracing::info!("this host uses its next key from now on");
        Ok(())
    }

    /// After the controller has admitted this host with its present key: gives the file of another
    /// key the name that leads to a new offer.
    fn put_key_back(&self) -> Result<(), End> {
        let state = &self.enrol.directory;
        for name in [OFFERED_KEY, NEXT_KEY] {
            let Some(key) = state.key_if_any(name).map_err(End::State)? else { continue };
            let is_in_use = key.public() == self.key;
            let to = if is_in_use { PRIVATE_KEY } else { PENDING_KEY };
            state.rename(name, to).map_err(End::State)?;
        }
        Ok(())
    }

    /// After the controller has refused the key of this host: offers the other one, if there are
    /// two.
    pub(super) fn turn_key(&mut self) {
        let state = &self.enrol.directory;
        if self.next.take().is_none() {
            self.next = state.next_key().ok().flatten();
        } else if let Err(why) = state.rename(OFFERED_KEY, NEXT_KEY) {
            // The controller does not have this key, so the next start must not use it.
            tracing::error!("{why}");
        }
    }

    pub(super) fn has_next_key(&self) -> bool {
        matches!(self.enrol.directory.next_key(), Ok(Some(_)))
    }

    /// Ends the session after the controller has stored the public key of the next key, so that the
    /// next session offers it.
    pub(super) fn keep_key(&mut self, public_key: &str) -> Result<(), End> {
        let state = &self.enrol.directory;
        let pending = state.key_if_any(PENDING_KEY).map_err(End::State)?;
        let Some(next) = pending.filter(|key| key.public().to_string() == public_key) else {
            return Ok(());
        };
        state.rename(PENDING_KEY, NEXT_KEY).map_err(End::State)?;
        tracing::info!("the controller has the next key of this host");
        self.next = Some(next);
        Err(End::NextKey)
    }
}
