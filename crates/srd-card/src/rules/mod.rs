//! Rules of the card: `snapshot` contains them, `prefix` the addresses in them.

pub mod prefix;
pub(crate) mod snapshot;
