//! Finds bursts of packets, on any interface or in capture files, without the project's card.
//! [`docs/watch.md`](../../../docs/watch.md) defines bursts.
//!
//! ```text
//!  live, file --> read: flow, bytes, packets --> watch: model, bins, finder --> session --> text
//!  (source,       (tunnel)                       (pure: time is an argument)    |           html
//!   captures)                                    allowances (pure) -------------+           keep
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`live`], [`mod@file`] | packets of interfaces, of capture files |
//! | [`input`] | a file, pipe or standard input, decompressed, whose reads a signal ends |
//! | [`source`] | an interface's packets: eBPF at tc, or a packet socket |
//! | `link`, [`other`] | headers before IP, and unsupported packets |
//! | [`read`], `tunnel`, [`arrival`] | parsing of packets for the analysis |
//! | [`steady`] | steady times from a clock that may be set back |
//! | [`watch`] | the analysis: `bins`, `find` bursts in them, `average` rates, [`timeline`] |
//! | [`model`], `meters` | the limits, with the buckets and queues of `srd-card` |
//! | [`sketch`] | the flows that carry the most bytes, in bounded memory |
//! | [`allowances`] | assignment of the driver's counters to bursts |
//! | [`session`], [`keep`] | all state of one interface; packets to be saved |
//! | [`burst`], [`text`], `units`, [`html`], [`metrics`] | output for each kind of reader |
#![forbid(unsafe_code)]

pub mod allowances;
pub mod arrival;
mod average;
mod bins;
pub mod burst;
pub mod file;
mod find;
pub mod html;
pub mod input;
pub mod keep;
mod link;
pub mod live;
pub mod meters;
pub mod metrics;
pub mod model;
pub mod other;
pub mod read;
pub mod session;
pub mod sketch;
pub mod source;
pub mod steady;
pub mod text;
pub mod timeline;
mod tunnel;
mod units;
pub mod watch;

pub use arrival::{Arrival, Flow, PacketDirection, Tunnel};
pub use burst::Burst;
pub use model::Model;
pub use srd_card::Prefix;
pub use watch::{Event, Settings, Watch};
