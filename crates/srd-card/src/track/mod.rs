//! Connection tracking: which connections an instance has, and until when.
//!
//! | file | what |
//! |---|---|
//! | [`key`] | what identifies a connection, seen from the instance |
//! | [`state`] | what packets make of a connection |
//! | [`timeouts`] | idle times of an ENI, with EC2's bounds |
//! | [`table`] | the connections, up to the allowance |
//! | `wheel` | when they expire |
//! | [`tracked`] | which connections are tracked at all |
//!
//! The rules are those of `docs/spec/card.md`, section 2.

pub mod key;
pub mod state;
pub mod table;
pub mod timeouts;
pub mod tracked;
mod wheel;

pub use key::{Key, Way};
pub use state::{Seen, State};
pub use table::{Found, Full, Table, TrackId};
pub use timeouts::{Timeouts, TimeoutsError};
pub use tracked::{Permission, is_tracked};
