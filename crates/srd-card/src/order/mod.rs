//! The receiving side of flows: chunks become frames, frames of one flow come out in order, and
//! a hole in one flow holds up that flow alone, for a bounded time.
//!
//! SRD delivers every chunk once and loses none for good, so a hole means a packet that is on
//! its way again. If it does not come (the sender gave it up), the flow goes on without it after
//! `order_wait`, and that is counted.
//!
//! The flows here are those of the peers, by the peer and its number for the flow: before a frame
//! is whole nothing else is known of its flow (see [`crate::flow`]). Every frame goes up under the
//! peer that sent it, whether its turn came or time ended its wait; the [`Sink`] checks it against
//! that peer, before it waits and again when it goes up.
//!
//! Bounds: `flows_max` flows, `receive_bytes_max` bytes of all that is kept (flows, buffers as
//! large as they are allocated, and the records of frames and chunks), 4,096 frames per flow, one
//! wait in line per flow, [`SPARE_MAX`] spare buffers. Peers share both limits. A peer that finds
//! its part used up gives the place of a flow that has been silent for a second to the newcomer.
//! Chunks that exceed the bounds are dropped and counted; the flow's wait then ends by time.

mod budget;
mod sink;
mod store;
mod table;

pub(crate) use budget::Limits;
pub use sink::OrderCounts;
pub(crate) use sink::{Admission, Near, Sink};
pub(crate) use store::SPARE_MAX;
pub(crate) use table::Order;
