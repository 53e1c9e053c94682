//! Figures over HTTP: for Prometheus, and as a page for people. Off unless configured.
//!
//! | path | what |
//! |---|---|
//! | `/` | the page: one file, nothing from elsewhere |
//! | `/status.json` | a [`crate::snapshot::Snapshot`] with flows; `?peer=NAME` adds its paths |
//! | `/metrics` | OpenMetrics text |
//!
//! Nothing can be changed here, and nothing identifies a client. So only this machine is answered
//! unless the configuration allows others, and only under names that are this machine's: a page
//! from elsewhere whose name was bent to our address (DNS rebinding) gets nothing.
//!
//! Bounds: [`server::CONNECTIONS_MAX`] connections, one request each, of at most
//! [`http::HEAD_BYTES_MAX`] within [`http::HEAD_WAIT_MAX`]; a snapshot is made at most every
//! [`cache::PLANE_PAUSE`], however many ask us.
//!
//! | module | what |
//! |---|---|
//! | [`server`] | connections, and what is at which path |
//! | [`http`] | one request read, one response written |
//! | `host` | which names are ours |
//! | [`cache`] | snapshots that several may share |
//! | `exposition` | a snapshot as OpenMetrics text |

#[cfg(test)]
mod browser_tests;
pub mod cache;
mod exposition;
mod host;
pub mod http;
pub mod server;
#[cfg(test)]
mod tests;

pub use server::{Listener, Server};
