//! The Messaging Layer, without clock, sockets and threads: reliable datagram endpoints
//! (`FI_EP_RDM`) over SRD.
//!
//! An [`Rdm`] sends messages of any length, in order to each peer, to receives that are matched by
//! tag and source. It reads and writes peers' memory, and peers may read and write its memory. It
//! corresponds to EFA's libfabric provider; `docs/spec/rdm.md` is the specification.
//!
//! | module | content |
//! |---|---|
//! | `peers` | addresses, runs and sessions |
//! | `send` | from the application's call to the end of the operation |
//! | `receive` | from a peer's datagram to the application's receive |
//! | `rma` | reads, writes and atomic operations |
//! | `wire` | the frames |
//! | `layer` | the trait [`crate::layer::Layer`] for this layer |
//! | `state`, `progress` | every table; handling of events and completions |
//! | `config`, `counters`, `iovec` | limits, counters, memory in pieces |
//!
//! # Three decisions
//! - **No receive buffers of the device are posted.** The receive of a message is searched while
//!   the message is still in its packet, and the bytes are copied once, into the application's
//!   buffer.
//! - **The receiver limits its senders.** Credit limits short messages, and the receiver reads a
//!   bounded number of long ones at a time: senders cannot flood the receiver, and it refuses no
//!   sender.
//! - **A possible loss leads to a new session.** If a message may be lost, the sender opens a
//!   session with new message numbers. No message is delivered twice, or out of order, or lost
//!   without an error.

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
