//! Metrics over HTTP, for Prometheus and as a web page. The server runs only if it is configured.
//!
//! | path | contents |
//! |---|---|
//! | `/` | the page: one file that loads nothing from other servers |
//! | `/status.json` | a [`crate::snapshot::Snapshot`] with flows; `?peer=NAME` adds its paths |
//! | `/metrics` | OpenMetrics text; in a node with instances also the figures of these |
//! | `/instances/` | in a node with instances: their page and `status.json`; a node with instances alone has these at `/` and `/status.json`, too |
//!
//! The server only reads. It accepts connections from this machine only, unless the configuration
//! allows other machines, and limits their number (see `srd_http`). Between two snapshots it waits
//! at least [`cache::PLANE_PAUSE`], whatever the number of requests.
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
pub(crate) use server::adopt;
pub use server::{InstanceFigures, TABS_OF_INSTANCES, bind, start};
