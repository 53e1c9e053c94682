//! What the card is told to do: `snapshot` the rules, `prefix` the addresses in them.

pub mod prefix;
pub(crate) mod snapshot;
