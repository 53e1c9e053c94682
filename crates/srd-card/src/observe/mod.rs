//! Flow logs: records of an interface's packets.
//!
//! ```text
//!  packet --> Aggregator: flows of this window --> Window --> Record --> values, a line of text
//!             (one for each interface and length of window)   (off the packet path)
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`window`] | packets and bytes by flow, for one window of time |
//! | [`record`] | records of a window with EC2's fields: one for each flow, or one without data |
//!
//! The rules are those of `docs/spec/card.md`, section 6.

pub mod record;
pub mod window;

pub use record::{InterfaceAttributes, Record, Value, header, line, records, version_of};
pub use window::{Action, Aggregator, Count, FLOWS_MAX, Flow, FlowKey, Observed, Path, Window};
