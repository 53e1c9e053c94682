//! The receiving side of flows: chunks become frames, and the frames of a flow come out in order.
//! A gap in one flow delays only that flow, for a bounded time.
//!
//! SRD delivers every chunk once and loses none permanently, so a gap means that a packet is being
//! sent again. If the packet does not arrive because the sender gave it up, the flow continues
//! without it after `order_wait`, and the loss is counted.
//!
//! `order_wait` is [`crate::Config::order_wait`]: 100 ms by default, and longer in `srd up` on a
//! slow link (O3 of `docs/spec/express.md`). `table` ends a wait that has lasted this long.
//!
//! Flows are identified by the peer and the peer's number of the flow, because the key of a flow
//! is not known before a frame is complete (see [`crate::flow`]). A frame is delivered in sequence,
//! or when the wait for an earlier frame has timed out. The [`Sink`] checks whether the peer from
//! which the frame arrived may send it: before the frame waits, and again when it is delivered.
//!
//! Bounds: `flows_max` flows, and records of `flows_max` replaced ones; `receive_bytes_max` bytes
//! for flows, for buffers (with their allocated size), and for the records of frames and chunks;
//! 4,096 frames for each flow; one timer entry for each flow; [`SPARE_MAX`] spare buffers. Peers
//! share the first limits. If the table is full, a new flow replaces one without waiting frames, so
//! no frame is lost because many flows are in use. The replaced flow is one of the interface that
//! has most flows (`senders`), and continues where it was (`replaced`). Chunks beyond the other
//! bounds are dropped and counted; the flow's wait then ends by timeout.

mod budget;
mod replaced;
mod senders;
mod sink;
mod store;
mod table;

pub(crate) use budget::Limits;
pub use sink::OrderCounts;
pub(crate) use sink::{Admission, Near, Sink, Source};
pub(crate) use store::SPARE_MAX;
pub(crate) use table::Order;
