//! Rules of the Express stage: the peers, the address prefixes behind each peer, and whether SRD is
//! on. They are evaluated for the first packet of a flow. `snapshot` contains the rules, and
//! `prefix` the address prefixes in them.

pub mod prefix;
pub(crate) mod snapshot;
