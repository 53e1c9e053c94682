//! The verbs as one endpoint: messages of one datagram, and reads and writes of one piece, directly
//! on an SRD queue pair.
//!
//! The features of [`crate::rdm`] are absent: messages arrive in any order, into the oldest
//! receive, and have at most the length of one datagram. An address does not identify a run of an
//! endpoint: operations go to the current run at the address. Calls and completions are those of
//! the Messaging Layer, as far as this layer supports them.
//!
//! With [`Service::Datagrams`] a message is lost if there is no receive for it or the receive is
//! too small; its send succeeds, as with UDP. With [`Service::Direct`] the message waits for a
//! receive, and fails if the receive is too small.
//!
//! | module | content |
//! |---|---|
//! | `peers` | peers that the application added, and peers that have sent to this endpoint |
//! | `post` | conversion of calls into work requests |
//! | `completions` | conversion of the completions of work requests |
//! | `layer` | the trait [`crate::layer::Layer`] for this layer |
//! | `state` | every table, and the calls that drive the endpoint |

mod completions;
mod layer;
mod peers;
mod post;
mod state;
#[cfg(test)]
mod tests;

pub use state::{Config, Direct, Service};
