//! ENA Express as a service on an ordinary Linux machine: all parts of `srd up` except the
//! processing of packets. A packet of a program passes the TUN device, a worker of this crate, the
//! card (`srd-card`), the transport (`srd-proto`) and a UDP socket (`srd-net`).
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
//! Packets belong to the workers: threads that no code of this crate may delay. Commands reach a
//! worker through a bounded queue, which it reads once in each round of its loop. Statistics are
//! read from memory that the workers write. Captured packets are dropped and counted if their queue
//! is full. Everything else belongs to the control thread, which other threads reach through
//! [`plane`].
//!
//! | module | contents |
//! |---|---|
//! | [`capture`] | copies of packets for Wireshark |
//! | [`config`] | the file `srd.toml`: reads, checks and compares it |
//! | [`control`] | the control socket: server and client |
//! | [`control_plane`] | enrolment at a controller, which sends the peers |
//! | [`handover`] | hands the running daemon over to another process |
//! | [`hooks`] | the operator's commands at the start and the end |
//! | [`metrics`] | metrics for Prometheus, and a web page |
//! | [`netconf`] | addresses, routes and rules, which a child process with the privilege sets |
//! | [`notify`] | notifications to systemd |
//! | `pages` | statistics, as the workers write them |
//! | [`plane`] | requests to the control thread |
//! | `routing` | the routes through the interface |
//! | [`run`] | `srd up`: setup, loss of privileges, workers |
//! | [`snapshot`] | the state of the daemon, for people and machines |
//! | [`units`] | rates in the form that people write |
//! | `waiting` | threads that are started before their work begins |

#![forbid(unsafe_code)]

// Fuzz targets refer to this crate by its name, and tests of this crate include their source.
#[cfg(test)]
extern crate self as srd_daemon;

pub mod capture;
pub mod config;
pub mod control;
pub mod control_plane;
#[cfg(test)]
mod fake_plane;
pub mod handover;
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
mod waiting;
