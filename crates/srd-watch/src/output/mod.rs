//! Output for each kind of reader: text, a page, and OpenMetrics.

pub mod html;
pub mod metrics;
pub mod text;
pub(crate) mod units;
