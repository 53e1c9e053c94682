//! SRD: a reliable, unordered datagram transport that sprays each flow over many paths.
//!
//! This crate is the whole protocol as a pure state machine. It has no clock, no socket, no thread
//! and no source of randomness. The program that runs it (a driver with sockets, a simulator or a
//! test: the *world*) passes in the time and received packets, and takes out the packets to be
//! sent:
//!
//! ```text
//! loop {
//!     while let Some(transmit) = endpoint.poll_transmit(now, &mut buf) {
//!         io.send(&transmit, &buf);
//!         buf.clear();
//!     }
//!     while let Some(event) = endpoint.poll_event() { app.on_event(event); }
//!     // wait for packets until endpoint.poll_timeout(), then for each packet:
//!     if let Some(delivery) = endpoint.handle_packet(now, meta, packet) {
//!         app.on_datagram(delivery);
//!     }
//!     endpoint.handle_timeout(now);
//! }
//! ```
//!
//! The life of a datagram:
//!
//! 1. [`Endpoint::send`] queues it under its queue pair.
//! 2. It leaves when congestion window, packet window, credit limit and pacer allow it. Its path is
//!    chosen at that moment.
//! 3. The receiver delivers it as soon as it arrives, in any order, and once.
//! 4. An acknowledgement settles it. If it is declared lost instead, it is sent again, under a new
//!    packet number and on another path.
//! 5. [`Endpoint::poll_event`] returns its completion.
//!
//! `docs/spec/srd.md` is the specification; modules cite its rules.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`config`], [`ids`], [`rng`] | settings with units and bounds; identifiers; random numbers from a seed |
//! | [`error`], [`event`], [`stats`] | refused calls and dropped packets; events; counters |
//! | `endpoint` | calls of the application; which peer a packet belongs to; sessions; answers to strangers |
//! | [`node`], `shared` | state that the endpoints of a node share, and that the peers of an endpoint share |
//! | `peer` | one remote node: what is sent next, and what a received packet means |
//! | `send` | waiting datagrams, packets in flight, congestion window, credit, pacing, delays |
//! | `received`, `queue_pairs` | the receive window; local queue pairs and their receive buffers |
//! | `path` | the paths of a peer: selection, states (good, skipped, assumed bad, denied), probes |
//! | `chain` | lists through the entries of a table |
//! | `security`, [`secret`] | modes and keys of an endpoint; secrets of hash tables |
//! | [`transmit`], [`wire`] | batches of packets to send; the wire format, one file for each type of packet |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod chain;
pub mod config;
mod endpoint;
pub mod error;
pub mod event;
pub mod ids;
pub mod node;
mod path;
mod peer;
mod queue_pairs;
mod received;
pub mod rng;
pub mod secret;
mod security;
mod send;
mod shared;
pub mod stats;
pub mod transmit;
pub mod wire;

pub use config::{ADDRESSES_MAX, Admission, Config, Protection, Spray};
pub use endpoint::{Endpoint, PeerConfig};
pub use error::{AddPeerError, ConfigError, DropReason, SendError};
pub use event::{Class, Datagram, Delivery, Diagnosis, DownReason, Event, Status, Unreachable};
pub use ids::{DatagramId, Entropy, Epoch, PeerId, Qpn};
pub use node::{Node, SHARDS_MAX, shard_of};
pub use queue_pairs::ReceiveBuffers;
pub use secret::Secret;
pub use srd_crypto as crypto;
pub use srd_crypto::time;
pub use stats::{PathReport, PeerStats, Stats};
pub use time::{Duration, Instant};
pub use transmit::{Ecn, PacketMeta, PacketRef, Transmit, TransmitBuf};
