//! Connection tracking: the connections of an instance, and their idle times.
//!
//! | module | contents |
//! |---|---|
//! | [`key`] | key of a connection, seen from the instance |
//! | [`state`] | changes of a connection's state by its packets |
//! | [`timeouts`] | idle times of an ENI, with EC2's bounds |
//! | [`table`] | the connections, up to the allowance |
//! | `entries` | memory of the connections |
//! | `index` | search by the hash of a key |
//! | `wheel` | expiry of entries |
//!
//! The rules are those of `docs/spec/card.md`, section 2.

mod entries;
mod index;
pub mod key;
pub mod state;
pub mod table;
pub mod timeouts;
mod wheel;

pub use key::{ConnectionDirection, Key, is_error};
pub use state::{PacketKind, State};
pub use table::{FlowEntry, Full, Lookup, Table, TrackId};
pub use timeouts::{Timeouts, TimeoutsError};
