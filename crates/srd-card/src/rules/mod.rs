//! The rules of the card: `snapshot` holds them, `prefix` the addresses in them.

pub mod prefix;
pub(crate) mod snapshot;
