//! Limits of what an instance may send and receive: token buckets, each with a queue before it.
//!
//! | module | contents |
//! |---|---|
//! | [`bucket`] | one token bucket in exact integers |
//! | [`bandwidth`] | peak rate and credits of one direction |
//! | [`ceiling`] | the ceilings of one flow, and of traffic through a gateway |
//! | [`allowances`] | the counters, under the names of `ethtool -S` |
//! | `waiting` | packets that wait, by the time at which they may continue |
//! | [`stages`] | all limits of an instance, applied one after the other |
//!
//! The rules are those of `docs/spec/card.md`, section 1. All times are arguments; nothing here
//! reads a clock. Memory is bounded by [`Settings::queue_packets_max`] for each limit that queues.

pub mod allowances;
pub mod bandwidth;
pub mod bucket;
pub mod ceiling;
pub mod stages;
mod waiting;

pub use allowances::{Allowances, Limit};
pub use bandwidth::{Bandwidth, Rates};
pub use bucket::Bucket;
pub use ceiling::{Ceiling, FlowKind, FlowMeter, gateway_bps};
pub use stages::{LimitDecision, Limits, Offer, Outcome, Settings};
