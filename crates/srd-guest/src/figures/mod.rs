//! Metrics and status of the card, and flow logs.
//!
//! | module | content |
//! |---|---|
//! | `pages`, `publishing` | figures as numbers that any thread reads, and their publication |
//! | `metrics` | figures over HTTP |
//! | [`export`] | figures in the forms of OpenTelemetry and CloudWatch |
//! | `logging`, `logs` | flow logs: their selection, and their files |

pub mod export;
pub(crate) mod logging;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod pages;
pub(crate) mod publishing;
