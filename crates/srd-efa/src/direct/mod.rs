//! The verbs as one endpoint: messages of one datagram, and reads and writes of one piece, straight
//! on a queue pair of the service SRD.
//!
//! What [`crate::rdm`] adds is absent: messages come in any order, into the oldest receive, and are
//! as long as one datagram at most. Addresses name a place, not a run of an endpoint: what is sent
//! goes to the present run there. Calls and completions are those of the Messaging Layer, as far as
//! they make sense here.
//!
//! With [`Service::Datagrams`] a message that finds no receive, or one that is too small, is lost
//! and its send succeeds, as with datagrams elsewhere. With [`Service::Direct`] it waits for a
//! receive, and fails if that is too small.
//!
//! | module | what |
//! |---|---|
//! | `peers` | peers that the application named, and peers that wrote to us |
//! | `post` | turns calls into work requests |
//! | `completions` | what came of them |
//! | `state` | every table, and what drives the endpoint |

mod completions;
mod layer;
mod peers;
mod post;
mod state;
#[cfg(test)]
mod tests;

pub use state::{Config, Direct, Service};
