//! The verbs as one endpoint: messages of one datagram, and reads and writes of one piece, straight
//! on a queue pair of the service SRD.
//!
//! What [`crate::rdm`] adds is absent: messages come in any order, into the oldest receive, and are
//! as long as one datagram at most. Addresses name a place, not a run of an endpoint: what is sent
//! goes to whoever is there. Calls and ends are those of the Messaging Layer, as far as they
//! make sense here.
//!
//! A [`Service::Datagrams`] loses what finds no receive, or one that is too small, without a word,
//! as datagrams do; a [`Service::Direct`] waits for a receive, and says what was too long.
//!
//! | module | what |
//! |---|---|
//! | `peers` | whom the application named, and who wrote to us |
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
