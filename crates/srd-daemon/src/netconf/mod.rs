//! Addresses, routes and rules, through a child process that keeps the privilege for them.
//!
//! ```text
//!   srd up (no privileges after set-up)        srd network (CAP_NET_ADMIN and nothing else)
//!     Network::ask   --- Request, JSON --->      changes its interface, table and rules
//!                    <-- Answer, JSON -----
//!     log            <-- Answer::Note ------     the interface went down, or up again
//!     ends, however  --- end of file ------>     gives everything back, and ends
//! ```
//!
//! The child is told at its start which interface, addresses, table and mark it works on
//! ([`Spec`]); requests name none of these, so that a daemon that was taken over can change
//! neither other interfaces nor other tables. The child speaks rtnetlink to the kernel and starts
//! no programs.
//!
//! What it shall keep is a state, not a row of commands: it compares the kernel's routes and
//! rules with it after each change, when its interface goes up or down, and every
//! `VERIFY_EVERY`, and makes good what differs.
//!
//! | module | what |
//! |---|---|
//! | `plan` | which routes and rules there shall be |
//! | `kernel` | what the kernel has, and how it is changed |
//! | `netlink` | the socket to the kernel |
//! | `serve` | the child's work |
//! | `sockets` | which addresses programs still hold |
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

/// Bytes of one request or answer.
pub const LINE_BYTES_MAX: usize = 128 * 1024;
/// Changes in one request: each takes less than 200 bytes.
pub const CHANGES_MAX: usize = 512;

/// What the child is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Request {
    /// Set the interface up, with its addresses and rules. Once.
    Up {
        /// Its largest packet, in bytes.
        mtu: u16,
    },
    /// Change what shall be routed into the interface.
    Change {
        /// New routes, or new sources of routes.
        add: Vec<Route>,
        /// Routes that shall go.
        remove: Vec<IpNet>,
    },
    /// Make the kernel's routes and rules what was asked for.
    Apply,
}

/// What the child answers: one of the first two to each request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It was done.
    Done,
    /// It was not, or not all of it; why.
    Failed(String),
    /// Something to log that nobody has asked for.
    Note(String),
}
