//! Needs of traffic on an instance: kinds of traffic, rates, tracked connections, the types that
//! carry it, and changes to make before paying for more.
//! [`docs/profile.md`](../../../docs/profile.md) describes how each is found.
//!
//! ```text
//!  live, capture --> profiler: ladder, rates, flows, tunnels, connections --> needs
//!                                                                              |
//!                     text, html <-- advice <-- choose (all types) <-- traffic +
//!                                                  replay: does it hold?
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`live`], [`capture`] | packets of interfaces, of capture files |
//! | [`profiler`] | the analysis of one interface |
//! | `ladder`, [`rates`], [`flows`], [`tunnels`], [`connections`] | its parts |
//! | `distinct`, `place`, `number` | counts of distinct values; location of an address; formatting of numbers |
//! | [`needs`] | captured traffic, and its needs |
//! | [`traffic`] | kinds of traffic |
//! | [`choose`] | instance types, and the limit that each exceeds first |
//! | [`advice`] | changes to make before paying |
//! | [`replay`] | the same packets through the limits of one type |
//! | [`report()`] | the full report |
//! | [`text`], [`html`] | output for the user |
#![forbid(unsafe_code)]

pub mod advice;
mod analysis;
pub mod capture;
pub mod choose;
pub mod live;
pub mod needs;
mod output;
pub mod replay;
#[cfg(test)]
mod testing;
pub mod traffic;

pub use output::{html, text};

pub use analysis::{connections, flows, profiler, rates, tunnels};

pub use analysis::profiler::Profiler;
pub use choose::Filter;
pub use output::report::{Report, report};
