//! Flow logs: records of an interface's packets.
//!
//! ```text
//!  packet --> Aggregator: flows of this window --> Window --> Record --> values, a line of text
//!             (one for each interface and length of window)   (off the packet path)
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`window`] | packets and bytes by flow, for one window of time |
//! | [`record`] | a flow of a window, or its absence, as a record with EC2's fields |
//!
//! The rules are those of `docs/spec/card.md`, section 6.

pub mod record;
pub mod window;

pub use record::{InterfaceAttributes, Record, Value, header, line, records, version_of};
pub use window::{Action, Aggregator, Count, FLOWS_MAX, Flow, FlowKey, Observed, Path, Window};
