//! The card: state machines between the network interface of a guest and the transport
//! ([`srd_proto`]). A guest is a namespace, a virtual machine or, with `srd up`, this machine. Each
//! packet that a guest sends or receives passes through the card.
//!
//! # One pipeline for both directions
//! The card reads each packet once. It looks up the packet's flow in one table. If the flow is
//! unknown, the rules decide, and the decision is stored in the table. All later steps use the
//! fields that were read and the stored decision.
//!
//! ```text
//!  guest --> read --> flow table --> Express: queue of the peer --+--> SRD datagrams
//!            clamp    hit: verdict            fair, marks ECN     +--> one unreliable datagram
//!            MSS      miss: rules                                      per packet
//!
//!  guest <-- clamp <-- flow table <-- read <--+-- order, per flow <--- SRD datagrams
//!            MSS       may this peer          +----------------------- unreliable datagrams
//!                      send it?
//! ```
//!
//! # The ENA Express stage
//! [`Express`] carries ordinary IP packets of a guest to peers. SRD carries TCP and UDP packets if
//! both ends permit it: their flows use all paths, losses are repaired within microseconds, and
//! each flow's order is restored before the packets reach the other guest. All other packets use
//! plain encapsulation: one datagram for each packet, on the path that the flow's hash selects. If
//! a change of the rules forbids SRD, all packets use plain encapsulation. A switch between SRD and
//! plain encapsulation loses no packet.
//!
//! # The card of an instance
//! [`limits`], [`track`], [`device`] and [`profile`] contain what an instance type allows:
//! bandwidth and packets per second, tracked connections, queues and rings. These modules do not
//! depend on the ENA Express stage. Their rules are in `docs/spec/card.md`.
//!
//! # The loop that runs the stage
//! The world (the program, simulator or test that runs this code) owns the guest's interface and an
//! [`srd_proto::Endpoint`]:
//!
//! ```text
//! loop {
//!     for each frame of the guest:       express.from_guest(now, frame, guest)
//!     express.pump(now, endpoint)        // hands over frames that may leave
//!     endpoint.poll_transmit ... endpoint.poll_event -> express.event(now, event)
//!     endpoint.handle_packet -> express.delivered(now, delivery, guest)
//!     express.handle_timeout(now, guest) at express.poll_timeout()
//! }
//! ```
//!
//! A frame is an [`offload`] header followed by an IP packet. This code has neither a clock nor a
//! source of random numbers: the world passes in the time and a secret.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `meta`, `rewrite` | the headers of a packet, read once; changes of packets |
//! | `flow`, `rules` | the flow table; the rules of the Express stage |
//! | `express` | the Express stage: `feed` states which packets may use SRD, `egress` queues them |
//! | `queue`, `order`, `wire` | fair queues of frames; order of received frames; the format between cards |
//! | [`vpc`] | packets of virtual private clouds |
//! | [`limits`], [`track`], [`profile`] | limits and connections of an instance; the figures of instance types, from `data/` |
//! | [`tenants`] | shares of a worker's time |
//! | [`device`], [`l2`] | queues and interrupts of an ENA adapter; the Ethernet link of a virtual machine |
//! | [`observe`] | records of flow logs |
//! | [`config`], [`counters`], `hash`, `store` | settings; counters; hash of tables; state for the program that continues |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;
// The test code refers to the crate by its external name.
#[cfg(test)]
extern crate self as srd_card;

pub mod config;
pub mod counters;
pub mod device;
mod express;
mod flow;
mod hash;
pub mod l2;
pub mod limits;
mod meta;
pub mod observe;
mod order;
pub mod profile;
mod queue;
mod rewrite;
mod rules;
mod store;
pub mod tenants;
#[cfg(test)]
mod testing;
pub mod track;
pub mod vpc;
mod wire;

pub use config::Config;
pub use counters::{Counters, Traffic};
pub use express::{
    Arrivals, Arrived, Express, FlowReport, Guest, Parcel, Partner, PeerReport, Reach,
};
pub use meta::FRAME_BYTES_MAX;
pub use meta::key::{Direction, FlowKey};
pub use meta::{offload, packet};
pub use order::OrderCounts;
pub use rewrite::{checksum, join};
pub use rules::prefix::{self, Prefix, PrefixError, Routes};
pub use rules::snapshot::{PeerSettings, PeerSlot, Rules};
pub use srd_proto::Secret;
pub use store::StoredError;
pub use wire::cloud::{TRAILER_BYTES, Trailer};
pub use wire::queue_pairs::{CLOUD_QPN, FRAME_QPN, FRESH_QPN, OFFER_QPN};
pub use wire::{frame, offer};
