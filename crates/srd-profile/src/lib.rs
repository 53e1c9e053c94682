//! Needs of traffic on an EC2 instance: kinds of traffic, rates, tracked connections, the instance
//! types that carry the traffic, and changes to make before paying for a larger type.
//! [`docs/profile.md`](../../../docs/profile.md) describes how each is determined.
//!
//! ```text
//!  live, capture --> profiler: ladder, rates, flows, tunnels, connections --> needs
//!                                                                              |
//!                     text, html <-- advice <-- choose (all types) <-- traffic +
//!                                                  replay: does it hold?
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`live`], [`capture`] | packets of interfaces, and of capture files |
//! | `analysis` | from packets to the needs of the traffic ([`profiler`]) |
//! | [`needs`], [`traffic`] | captured traffic with its needs, and its kinds |
//! | [`choose`] | instance types, and the limit that each exceeds first |
//! | [`advice`] | changes to make before paying for a larger type |
//! | [`replay`] | sends the captured packets through the simulated limits of one type |
//! | `output` | the full report ([`report()`]), as [`text`] and as [`html`] |
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

pub use analysis::profiler::Profiler;
pub use analysis::{connections, flows, profiler, rates, tunnels};
pub use choose::Filter;
pub use output::report::{Report, report};
pub use output::{html, text};
