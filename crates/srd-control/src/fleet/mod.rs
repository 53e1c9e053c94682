//! Instances on hosts that have enrolled: their placement, and the parts of the cloud that the
//! hosts need.
//!
//! ```text
//!  request --> place: a host for each new instance --> state
//!          --> Texts --> Parts --- session of the host ---> its card
//!                          ^------ acknowledgement --------/
//! ```
//!
//! Each change of the part of a host has a generation. A request is answered when all connected
//! hosts that it concerns use its changes. A host that does not acknowledge in time is not waited
//! for again until it has caught up, and a host that is slow again and again is waited for only
//! shortly. A host that is away gets its part when it connects again, and
//! goes on with the part that it has until then. A request makes only the tables that it changes,
//! and wakes only the sessions of their hosts.
//!
//! | module | content |
//! |---|---|
//! | `texts` | the tables of the hosts of a region, made from the objects that have changed |
//! | `parts` | the part of each host, its generation, and its acknowledgement |
//! | `updates` | the changes between the parts of hosts |
//! | `conduct` | bounds of the harm that one host does to the requests of all others |
//! | `place` | the choice of a host |
//! | `warnings` | warnings about hosts for the operator |
//! | `machines` | the instances of the control plane as instances of hosts |

mod conduct;
mod machines;
mod parts;
mod place;
mod texts;
mod updates;
mod warnings;

pub use machines::HostMachines;
pub use parts::{Load, Parts};
pub(crate) use place::NO_HOST;
