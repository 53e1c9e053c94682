//! EFA's verbs over SRD, pure: no clock, no socket, no thread, no `unsafe`.
//!
//! A [`Device`] is what libibverbs calls a context, with the objects that EFA has: protection
//! domains, address handles, completion queues, registrations, queue pairs of the types SRD and
//! UD. Its names, states and statuses are EFA's, familiar to programmers of the verbs;
//! `docs/spec/efa.md` is the specification.
//!
//! ```text
//!  post_send --> send queue --> per peer --> SRD datagrams --> judged at the peer
//!                                 ^                               |  placed, or refused
//!                                 | Writable                      v
//!  poll_cq <--- completions <--- event <---- acknowledged, or a verdict
//! ```
//!
//! # Three decisions
//! - **No answers.** The peer's device checks each datagram as it arrives, and its verdict
//!   travels back in SRD's acknowledgement. A send, or a write, costs no packet beside its own
//!   data, whether it succeeds or fails.
//! - **No header before bulk data.** What describes a datagram fits the 64 bits that SRD carries
//!   for the layer above, so payloads are sent from where they lie. A write of several datagrams
//!   is opened by its first, which carries address and key; the others follow when that one has
//!   been judged, and name the transfer by number.
//! - **No queue overflows.** A request is taken only if there is room for its completion.
//!
//! # How a world drives it
//! The world owns an [`srd_proto::Endpoint`] and the application's [`Memory`]:
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
//! On the verbs stand [`rdm`], the Messaging Layer: `docs/spec/rdm.md`, and [`direct`], which adds
//! nothing to them.
//!
//! The endpoint needs `keepalive`, or a read whose answer is lost with its peer waits for ever.
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
mod memory;
mod mr;
mod qp;
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
