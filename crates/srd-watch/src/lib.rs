//! Finds bursts of packets on any interface or in capture files, independently of the project's
//! card. [`docs/watch.md`](../../../docs/watch.md) defines bursts.
//!
//! ```text
//!  live, file --> read: flow, bytes, packets --> watch: model, bins, finder --> session --> text
//!  (source,       (tunnel)                       (pure: time is an argument)    |           html
//!   captures)                                    allowances (pure) -------------+           keep
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`live`], [`mod@file`] | packets of interfaces, and of capture files |
//! | [`input`] | a file, pipe or standard input, decompressed; a signal ends its reads |
//! | [`source`] | an interface's packets: eBPF at tc, or a packet socket |
//! | `link`, [`other`] | headers before IP, and unsupported packets |
//! | [`read`], `tunnel`, [`arrival`] | fields of packets that the analysis needs |
//! | [`steady`] | times that do not go back, from a clock that may be set back |
//! | [`watch`] | the analysis: sums in `bins`, `find` bursts, `average` rates, [`timeline`] |
//! | [`model`], `meters` | the limits, with the buckets and queues of `srd-card` |
//! | [`sketch`] | the flows that carry the most bytes, in bounded memory |
//! | [`allowances`] | assignment of the driver's counters to bursts |
//! | [`session`], [`keep`] | all state of one interface; packets that are kept to be saved |
//! | [`burst`], [`text`], `units`, [`html`], [`metrics`] | a burst, and its output in each format |
#![forbid(unsafe_code)]

mod analysis;
mod output;
pub mod session;
mod sources;

pub use analysis::burst::Burst;
pub use analysis::model::Model;
pub use analysis::watch::{Event, Settings, Watch};
pub use analysis::{allowances, burst, meters, model, sketch, timeline, watch};
pub use output::{html, metrics, text};
pub use sources::arrival::{Arrival, Flow, PacketDirection, Tunnel};
pub use sources::{arrival, file, input, keep, live, other, read, source, steady};
pub use srd_card::Prefix;
