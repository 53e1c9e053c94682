//! The device that a guest sees: queues, rings, steering and interrupts of an ENA adapter.
//!
//! | module | contents |
//! |---|---|
//! | [`rss`] | Toeplitz hash and indirection table: the queue of a flow |
//! | [`steering`] | n-tuple rules, which come before the hash |
//! | [`ring`] | bounded rings that count their overflow |
//! | [`moderation`] | delay of interrupts |
//! | [`adaptive`] | moderation that follows the traffic |
//! | [`header`] | limit for the headers of a packet |
//!
//! The rules are those of `docs/spec/card.md`, section 3.

pub mod adaptive;
pub mod header;
pub mod moderation;
pub mod ring;
pub mod rss;
pub mod steering;
