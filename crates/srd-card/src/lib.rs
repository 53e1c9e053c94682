//! The card, pure: what stands between a guest's network interface and the fabric.
//!
//! # The ENA Express stage
//! [`Express`] carries ordinary IP packets of a guest to peers. TCP and UDP packets ride SRD
//! where both ends want it: their flows take every path, losses are made good within
//! microseconds, and each flow's order is restored before the other guest sees it. Everything
//! else, and everything as soon as a rule stops holding, rides plain encapsulation, one datagram
//! a packet, on one path chosen by the flow's hash. Switching between the two loses nothing.
//!
//! ```text
//!  guest --> classify --> queue of the peer --+--> SRD datagrams (a super-packet as several)
//!            clamp MSS    fair, marks ECN     +--> one unreliable datagram per packet
//!
//!  guest <-- check source <-- order, per flow <--- SRD datagrams
//!                        ^--------------------- unreliable datagrams
//! ```
//!
//! # How a world drives it
//! The world owns the guest's interface and an [`srd_proto::Endpoint`]:
//!
//! ```text
//! loop {
//!     for each frame of the guest:       express.from_guest(now, frame, guest)
//!     express.pump(now, endpoint)        // hands over what may leave
//!     endpoint.poll_transmit ... endpoint.poll_event -> express.event(now, event)
//!     endpoint.handle_packet -> express.delivered(now, delivery, guest)
//!     express.handle_timeout(now, guest) at express.poll_timeout()
//! }
//! ```
//!
//! A frame is a packet behind its [`offload`] header. Time is an argument, randomness a seed.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod config;
pub mod counters;
mod express;
mod flow;
mod hash;
mod meta;
mod order;
mod queue;
mod rewrite;
mod rules;
#[cfg(test)]
mod testing;
mod wire;

pub use config::Config;
pub use counters::{Counters, Traffic};
pub use express::{Express, FlowReport, Guest, PeerReport, Reach};
pub use meta::FRAME_BYTES_MAX;
pub use meta::key::{Direction, FlowKey};
pub use meta::{offload, packet};
pub use order::OrderCounts;
pub use rules::prefix::{self, Prefix, PrefixError, Routes};
pub use rules::snapshot::{PeerSettings, PeerSlot, Rules};
pub use wire::{frame, offer};

use srd_proto::Qpn;

/// Queue pair that frames are sent to, by SRD or plainly.
pub const FRAME_QPN: Qpn = Qpn(1);
/// Queue pair that frames of flows which have just begun are sent from: they go first.
pub const FRESH_QPN: Qpn = Qpn(2);
/// Queue pair for what cards tell each other.
pub const OFFER_QPN: Qpn = Qpn(3);
