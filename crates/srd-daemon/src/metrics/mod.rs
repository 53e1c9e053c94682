//! Figures over HTTP: for Prometheus, and as a page for people. Off unless configured.
//!
//! | path | what |
//! |---|---|
//! | `/` | the page: one file, nothing from elsewhere |
//! | `/status.json` | a [`crate::snapshot::Snapshot`] with flows; `?peer=NAME` adds its paths |
//! | `/metrics` | OpenMetrics text |
//!
//! Nothing can be changed here. Only this machine is answered unless the configuration allows
//! others, and few at once: `srd_http`. A snapshot is made at most every [`cache::PLANE_PAUSE`],
//! however many ask us.
//!
//! | module | what |
//! |---|---|
//! | [`server`] | what is at which path |
//! | [`cache`] | snapshots that several may share |
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
