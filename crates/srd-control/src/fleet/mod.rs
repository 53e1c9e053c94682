//! Instances on hosts that have enrolled: their placement, and the parts of the cloud that the
//! hosts need.
//!
//! ```text
//!  request --> place: a host for each new instance --> state
//!          --> project::part --> Parts --- session of the host ---> its card
//!                                  ^------ acknowledgement --------/
//! ```
//!
//! Each change of the part of a host has a generation. A request is answered when all connected
//! hosts that it concerns use its changes. A host that does not acknowledge in time is not waited
//! for again until it has caught up, and a host that is slow again and again is waited for only
//! shortly. A host that is away gets its part when it connects again, and
//! goes on with the part that it has until then.
//!
//! | module | content |
//! |---|---|
//! | `parts` | the part of each host, its generation, and its acknowledgement |
//! | `conduct` | bounds of the harm that one host does to the requests of all others |
//! | `place` | the choice of a host |
//! | `machines` | the instances of the control plane as instances of hosts |

mod conduct;
mod machines;
mod parts;
mod place;

pub use machines::HostMachines;
pub use parts::{Load, Parts};
pub(crate) use place::NO_HOST;
