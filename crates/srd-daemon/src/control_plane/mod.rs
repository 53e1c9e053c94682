//! Enrolment of this host at the control plane, which then sends its peers.
//!
//! ```text
//!   srd up --> enrol: once, with a token --> state directory --> Config (address, key, peers)
//!   controller -- TLS --> link --> follow: each change --> state directory, PlaneHandle::change
//! ```
//!
//! The state directory has everything that a start needs, so a host also starts without its
//! controller, with the peers that it had last.
//!
//! | module | contents |
//! |---|---|
//! | [`state`] | the files of the state directory |
//! | `link` | the connection to the controller |
//! | [`enrol`] | the first enrolment, and the choice of the key at a start |
//! | `follow` | the thread that applies changes while the daemon runs |
//! | `follow/next_key` | the change of the key while the daemon runs |
//! | `follow/identity` | the change of the controller's identity while the daemon runs |
//! | `cloud` | the part of the cloud that this host needs |
//! | [`pods`] | requests about pods of this host |

mod cloud;
pub mod enrol;
pub(crate) mod follow;
mod link;
pub mod pods;
pub mod state;
