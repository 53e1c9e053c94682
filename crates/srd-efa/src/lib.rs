//! EFA's verbs over SRD, without clock, sockets, threads and `unsafe`.
//!
//! A [`Device`] corresponds to a context of libibverbs, with EFA's objects: protection domains,
//! address handles, completion queues, registrations, queue pairs of the types SRD and UD. Its
//! names, states and statuses are those of EFA; `docs/spec/efa.md` is the specification.
//! The libfabric provider, the C library and the plugin for NCCL use this crate above the transport
//! ([`srd_proto`]).
//!
//! ```text
//!  post_send --> send queue --> per peer --> SRD datagrams --> checked at the peer
//!                                 ^                               |  placed, or refused
//!                                 | Writable                      v
//!  poll_cq <--- completions <--- event <---- acknowledged, or a verdict
//! ```
//!
//! # Three decisions
//! - **No answers.** The peer's device checks each datagram as it arrives, and SRD's
//!   acknowledgement carries the result back. A send, or a write, costs no packet in addition to
//!   its data, whether it succeeds or fails.
//! - **No header before bulk data.** The description of a datagram fits into the 64 bits that SRD
//!   carries for the layer above, so payloads are sent without a copy. The first datagram of a
//!   larger write carries address and key. The other datagrams follow after the first was admitted,
//!   and identify the transfer by its number.
//! - **No queue overflows.** A request is accepted only if a completion entry is free for it.
//!
//! # Use
//! The caller owns an [`srd_proto::Endpoint`] and the application's [`Memory`]:
//!
//! ```text
//! loop {
//!     device.pump(now, endpoint, memory)       // transfers go on
//!     endpoint.poll_transmit ... endpoint.poll_event -> device.event(now, event)
//!     endpoint.handle_packet_with(now, meta, packet, |d| device.admit(now, d, memory))
//!     device.poll_cq(cq)                       // completions for the application
//! }
//! ```
//!
//! Two layers use the verbs: [`rdm`], the Messaging Layer (`docs/spec/rdm.md`), and [`direct`],
//! which adds no protocol.
//!
//! The endpoint must use `keepalive`. Otherwise, if a peer fails before it has answered a read, the
//! read never ends.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `device` | the verbs: objects, work requests in progress, datagrams of peers |
//! | `qp`, `cq`, `mr`, `wr`, `memory`, `handle` | queue pairs, completion queues, memory registrations, work requests; the application's memory; handles |
//! | [`layer`] | requests, completions, and the trait that `rdm` and `direct` implement |
//! | [`rdm`] | the Messaging Layer: `send`, `receive`, `rma`, `peers` |
//! | [`direct`] | the verbs as one endpoint, without the Messaging Layer |
//! | `wire`, [`slots`], `config`, `counters`, `error` | bits of a datagram; a table without reused keys; settings; counters; errors |
//! | `hash` | hash of tables, and numbers that peers cannot guess |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod counters;
mod cq;
mod device;
pub mod direct;
mod error;
mod handle;
mod hash;
pub mod layer;
#[cfg(test)]
#[path = "../../srd-proto/tests/support/wire.rs"]
mod lossy_wire;
mod memory;
mod mr;
mod qp;
#[cfg(test)]
mod ram;
pub mod rdm;
pub mod slots;
mod wire;
mod wr;

pub use config::Config;
pub use counters::Counters;
pub use cq::{Completion, WcOpcode, WcStatus};
pub use device::{Device, Note};
pub use error::{CreateError, DestroyError, ModifyError, PostError};
pub use handle::{Ah, Cq, Pd};
pub use memory::{Memory, Sge};
pub use mr::{Access, MRS_MAX, Mr, Registration};
pub use qp::{QpAttr, QpInit, QpState, QpType, SERVICE_LEVEL_LOW_LATENCY, UD_HEADER_BYTES};
pub use wr::{RDMA_BYTES_MAX, RecvWr, Remote, SGES_MAX, SendOp, SendWr, Source};
