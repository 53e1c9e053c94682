//! Metrics over HTTP: for Prometheus, and as a web page. Off unless configured.
//!
//! | path | contents |
//! |---|---|
//! | `/` | the page: one file that loads nothing from other servers |
//! | `/status.json` | a [`crate::snapshot::Snapshot`] with flows; `?peer=NAME` adds its paths |
//! | `/metrics` | OpenMetrics text |
//!
//! The server changes nothing. It accepts connections from this machine only, unless the
//! configuration allows others, and few at once: see `srd_http`. A snapshot is made at most every
//! [`cache::PLANE_PAUSE`], regardless of the number of requests.
//!
//! | module | contents |
//! |---|---|
//! | [`server`] | the answer at each path |
//! | [`cache`] | snapshots that several requests share |
//! | `exposition` | a snapshot as OpenMetrics text |

#[cfg(test)]
mod browser_tests;
pub mod cache;
mod exposition;
pub mod server;
#[cfg(test)]
mod tests;

pub use exposition::sample;
pub use server::{bind, start};
