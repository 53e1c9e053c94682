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
//! | `sources` | packets of interfaces ([`live`]) and of capture files ([`mod@file`]), and their headers |
//! | `analysis` | from arrivals to bursts ([`watch`]), compared with limits ([`model`]) |
//! | [`session`] | all state of one interface |
//! | `output` | output for each kind of reader: [`text`], [`html`], [`metrics`] |
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
