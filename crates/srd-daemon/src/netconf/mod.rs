//! Addresses, routes and rules, set by a child process that keeps the privilege for this.
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
//! The requests describe a state, not a sequence of commands. The child compares the kernel's
//! routes and rules with this state after each `Apply`, when its interface goes up or down, and
//! every `VERIFY_EVERY`, and corrects differences.
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
//! Bounds: a request has at most [`LINE_BYTES_MAX`] bytes and [`CHANGES_MAX`] changes; the child
//! keeps at most as many prefixes as a configuration may have.

mod client;
mod kernel;
mod netlink;
mod plan;
mod serve;
mod sockets;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use client::Network;
pub use plan::{GUARDED_MAX, Route, Spec};
pub use serve::{release, serve};

/// Largest number of bytes of one request or answer.
pub const LINE_BYTES_MAX: usize = 128 * 1024;
/// Largest number of changes in one request: each takes less than 200 bytes.
pub const CHANGES_MAX: usize = 512;

/// A request to the child.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Request {
    /// Sets the interface up, with its addresses and rules. Only once.
    Up {
        /// Largest packet of the interface, in bytes.
        mtu: u16,
    },
    /// Changes the prefixes that are routed into the interface. Takes effect with the next `Apply`.
    Change {
        /// New routes, or new sources of routes.
        add: Vec<Route>,
        /// Prefixes whose routes are removed.
        remove: Vec<IpNet>,
    },
    /// Applies the requested routes and rules to the kernel.
    Apply,
}

/// A message of the child: one of the first two answers each request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The request was carried out.
    Done,
    /// The request failed, at least in part. Holds the reason.
    Failed(String),
    /// A message for the log that answers no request.
    Note(String),
}
