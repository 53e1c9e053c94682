//! Rules of the card: `snapshot` contains the rules, `prefix` the address prefixes in them.

pub mod prefix;
pub(crate) mod snapshot;
