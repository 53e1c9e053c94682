//! The change of the controller's identity while the daemon runs.
//!
//! ```text
//!   controller: change begins --Identities { present, next }--> enrolment.json --> acknowledgement
//!   later sessions: this host accepts both
//!   controller: change ends   --Identities { present }--------> enrolment.json --> acknowledgement
//! ```
//!
//! The identities are stored before they are acknowledged, so a host that is killed accepts those
//! that it has acknowledged. The controller sends them on a session of an identity that this host
//! accepts.

use srd_enrol::{ControllerIdentities, FromHost};

use super::{End, Follower};
use crate::control_plane::link::Link;
use crate::control_plane::pods::accept;
use crate::control_plane::state::Enrolment;

impl Follower {
    /// Stores the identities of the controller, and acknowledges them.
    pub(super) fn accept(
        &mut self,
        link: &mut Link,
        identities: ControllerIdentities,
    ) -> Result<(), End> {
        if self.enrolment.identities() != identities {
            let ControllerIdentities { present, next } = identities;
            let new =
                Enrolment { controller: present, next_controller: next, ..self.enrolment.clone() };
            self.enrol.directory.store(&new).map_err(End::State)?;
            self.enrolment = new;
            accept(&self.session, &self.enrolment);
            self.page.identify(present.to_string());
            match next {
                Some(next) => tracing::info!(
                    "the controller changes its identity: this host accepts {present} and {next}"
                ),
                None => tracing::info!("this host accepts the controller {present} only"),
            }
        }
        Ok(link.send(&FromHost::IdentitiesStored(identities))?)
    }
}
