//! The change of the key of this host while the daemon runs.
//!
//! ```text
//!   controller: rotate --> pending.key --public key--> controller stores it --> next.key
//!   next session: offers next.key --> admitted, all peers get it --> the daemon uses it
//!                                                                --> private.key
//! ```
//!
//! When the daemon uses the key, sessions with peers end, and open again. If the controller refuses
//! the key that a session offers, the next session offers the other one of the two: the controller
//! may or may not have taken the next key before its answer was lost. A daemon that ends in the
//! middle finishes the change at its next start (`prepare` of the module `enrol`).

use super::{End, Follower};
use crate::control_plane::link::Link;
use crate::control_plane::state::{NEXT_KEY, PENDING_KEY, PRIVATE_KEY};
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
        let Some(next) = self.next.clone() else {
            return match self.has_next_key() {
                true => state.rename(NEXT_KEY, PENDING_KEY).map_err(End::State),
                false => Ok(()),
            };
        };
        let changed = match self.plane.rekey(next.clone()) {
            Err(PlaneError::Gone) => return Err(End::Daemon),
            Err(error) => Err(error.to_string()),
            Ok(changed) => changed,
        };
        // The next session tries again.
        changed.map_err(|why| End::State(format!("the next key is not in use: {why}")))?;
        (self.key, self.next) = (next.public(), None);
        // If this fails, the next start offers the key again, and then renames its file.
        if let Err(why) = state.rename(NEXT_KEY, PRIVATE_KEY) {
            tracing::error!("{why}");
        }
        tracing::info!("this host uses its next key from now on");
        Ok(())
    }

    /// After the controller has refused the key of this host: offers the other one, if there are
    /// two.
    pub(super) fn turn_key(&mut self) {
        self.next = match self.next.take() {
            Some(_) => None,
            None => self.enrol.directory.key_if_any(NEXT_KEY).ok().flatten(),
        };
    }

    pub(super) fn has_next_key(&self) -> bool {
        matches!(self.enrol.directory.key_if_any(NEXT_KEY), Ok(Some(_)))
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
