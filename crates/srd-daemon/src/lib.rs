//! ENA Express as a service on an ordinary Linux machine: everything about `srd up` that is not
//! a packet.
//!
//! ```text
//!   srd.toml --> config ----------------------------+
//!                                                   v
//!   srd set, reload --> control/server - Command -> control thread -- orders --> workers
//!   srd status, top --> control/server --- read --+                            (own every packet)
//!   Prometheus -------> metrics/server --- read --+-- pages <-------- figures ---+
//!   srd capture ------> control/server <--------------- packets --- capture/tap -+
//! ```
//!
//! Packets belong to the workers, threads that nothing here may keep waiting: orders reach them
//! through bounded queues that are looked at once a turn, figures are read where they write them,
//! and captured packets are dropped and counted rather than waited for. Everything else is the
//! control thread's ([`plane`] is the way to it).
//!
//! | module | what |
//! |---|---|
//! | [`capture`] | packets for Wireshark |
//! | [`config`] | the file `srd.toml`: read, checked, compared |
//! | [`control`] | the control socket, both sides |
//! | [`hooks`] | commands of the operator's at the start and the end |
//! | [`metrics`] | figures for Prometheus, and a page for people |
//! | [`notify`] | what systemd is told |
//! | `pages` | statistics, as the packet threads write them |
//! | [`plane`] | what the rest may ask of the daemon |
//! | [`snapshot`] | the state of the daemon, for people and machines |
//! | [`units`] | rates as people write them |

#![forbid(unsafe_code)]

// Bodies of fuzz targets name this crate, and tests replay them.
#[cfg(test)]
extern crate self as srd_daemon;

pub mod capture;
pub mod config;
pub mod control;
#[cfg(test)]
mod fake_plane;
pub mod hooks;
pub use srd_net::keys;
pub mod metrics;
pub mod netconf;
pub mod notify;
mod pages;
pub mod plane;
mod routing;
pub mod run;
pub mod snapshot;
pub mod units;
