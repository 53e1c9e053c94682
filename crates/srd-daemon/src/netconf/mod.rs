//! Sets addresses, routes and rules through a child process, which keeps the necessary privilege
//! while the daemon drops it.
//!
//! ```text
//!   srd up (no privileges after set-up)        srd network (CAP_NET_ADMIN and nothing else)
//!     Network::ask   --- Request, JSON --->      changes its interface, table and rules
//!                    <-- Answer, JSON -----
//!     log            <-- Answer::Note ------     the interface went down, or up again
//!     ends           --- end of file ------>     deletes interface, routes, rules, and ends
//! ```
//!
//! The child receives its interface, addresses, table and mark at its start ([`Spec`]). Requests do
//! not name them, so a daemon that was taken over can change neither other interfaces nor other
//! tables. The child uses rtnetlink and starts no programs.
//!
//! Requests describe the required state, not steps. The child compares the kernel's routes and
//! rules with this state after each `Apply`, when its interface goes up or down, and every
//! `VERIFY_EVERY`. It corrects all differences.
//!
//! | module | contents |
//! |---|---|
//! | `plan` | the routes and rules that are needed |
//! | `kernel` | the kernel's routes and rules, and their changes |
//! | `netlink` | the socket to the kernel |
//! | `serve` | the child's work |
//! | `sockets` | addresses that sockets of programs still use |
//! | `client` | the daemon's side |
//!
//! Bounds: a request has at most [`LINE_BYTES_MAX`] bytes and [`CHANGES_MAX`] changes. The child
//! stores at most as many prefixes as a configuration may contain.

mod client;
mod kernel;
#[cfg(test)]
pub(crate) mod namespace;
mod netlink;
mod plan;
mod serve;
mod sockets;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub(crate) use client::Listener;
pub use client::Network;
pub use plan::{GUARDED_MAX, Route, Spec};
pub use serve::{release, serve};

/// Largest number of bytes of one request or answer.
pub const LINE_BYTES_MAX: usize = 128 * 1024;
/// Largest number of added and removed routes in one request; each takes less than 200 bytes.
pub const CHANGES_MAX: usize = 512;

/// A request of the daemon to the child.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Request {
    /// Sets the interface up, with its addresses and rules. This request is sent once.
    Up {
        /// MTU of the interface in bytes.
        mtu: u16,
    },
    /// Changes the list of required routes into the interface. The kernel's routes change with the
    /// next `Apply`.
    Change {
        /// Routes to add, or to give another source address.
        add: Vec<Route>,
        /// Prefixes whose routes are removed.
        remove: Vec<IpNet>,
    },
    /// Makes the kernel's routes and rules equal to the required routes and rules.
    Apply,
    /// Serves another daemon from now on, which has taken over the interface: clears the list of
    /// required routes. The kernel's routes stay until the next `Apply`. The answer is
    /// [`Answer::Begun`] with this number.
    Begin(u64),
}

/// A message of the child. [`Answer::Done`] or [`Answer::Failed`] answers each request except
/// [`Request::Begin`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The request was carried out.
    Done,
    /// At least a part of the request failed, for the contained reason.
    Failed(String),
    /// A text for the log, which is not an answer to a request.
    Note(String),
    /// Answers [`Request::Begin`]. Earlier answers are for the daemon before.
    Begun(u64),
}
