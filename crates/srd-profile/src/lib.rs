//! What traffic needs of an instance: kinds of traffic, rates, tracked connections, the types that
//! carry it, and what to change before paying for more.
//! [`docs/profile.md`](../../../docs/profile.md) says how each is found.
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
//! | `distinct`, `place` | counts of different things; where an address is |
//! | [`needs`] | what was seen, and what that needs |
//! | [`traffic`] | kinds of traffic |
//! | [`choose`] | instance types, and what each would lack first |
//! | [`advice`] | what to change before paying |
//! | [`replay`] | the same packets through the limits of one type |
//! | [`text`], [`html`] | for people |
#![forbid(unsafe_code)]

pub mod advice;
pub mod capture;
pub mod choose;
pub mod connections;
mod distinct;
pub mod flows;
pub mod html;
mod ladder;
pub mod live;
pub mod needs;
mod place;
pub mod profiler;
pub mod rates;
pub mod replay;
#[cfg(test)]
mod testing;
pub mod text;
pub mod traffic;
pub mod tunnels;

use serde::Serialize;
use srd_card::limits::FlowKind;

pub use choose::Filter;
pub use profiler::Profiler;

/// Everything that is said of one interface.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was seen.
    pub seen: needs::Seen,
    /// Kinds of traffic.
    pub kinds: Vec<traffic::Found>,
    /// Instance types.
    pub choices: choose::Choices,
    /// What to change before paying.
    pub advice: Vec<advice::Advice>,
}

/// What there is to say of what was seen. `kind`: where flows go, if the reader says so.
pub fn report(seen: needs::Seen, filter: &Filter, kind: Option<FlowKind>) -> Report {
    let kinds = traffic::kinds(&seen);
    let choices = choose::choose(&seen.needs, filter, kind);
    let advice = advice::advice(&seen, &kinds, &choices);
    Report { seen, kinds, choices, advice }
}
