//! The Messaging Layer, pure: reliable datagram endpoints (`FI_EP_RDM`) over SRD.
//!
//! An [`Rdm`] sends messages of any length, in order to each peer, to receives that are matched by
//! tag and source; it reads and writes peers' memory, and lets them do so. It is what EFA's
//! libfabric provider is to EFA's device: `docs/spec/rdm.md` is the specification.
//!
//! | room | what |
//! |---|---|
//! | `peers` | addresses, runs and sessions |
//! | `send` | from the application's call to the end of the operation |
//! | `receive` | from a peer's datagram to the application's receive |
//! | `rma` | reads, writes and atomic operations |
//! | `wire` | the frames |
//! | `state`, `progress` | every table; what happens goes in, what ended comes out |
//! | `config`, `counters`, `iovec` | limits, figures, memory in pieces |
//!
//! # Three decisions
//! - **Nothing is posted.** A message is looked up while it lies in the packet that brought it,
//!   and copied once, into the application's buffer.
//! - **The receiver decides.** Short messages are limited by credit, and the receiver reads a
//!   bounded number of long ones at a time: senders cannot flood it, and it refuses no sender.
//! - **Doubt opens a session.** When anything sent may be lost, the sender opens a session with
//!   new message numbers; no message is delivered twice, or out of order, or lost without an
//!   error.

pub(crate) mod config;
pub(crate) mod counters;
pub(crate) mod iovec;
mod layer;
pub(crate) mod peers;
mod progress;
pub(crate) mod receive;
pub(crate) mod rma;
pub(crate) mod send;
pub(crate) mod state;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

pub use config::Config;
pub use counters::{Occupancy, RdmCounters};
pub use receive::matching::{Envelope, Limits, Matcher, MessageKey, ReceiveKey};
pub use state::Rdm;
