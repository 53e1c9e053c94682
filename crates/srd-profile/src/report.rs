//! Everything that is said of one interface.

use serde::Serialize;
use srd_card::limits::FlowKind;

use crate::advice::{Advice, advice};
use crate::choose::{Choices, Filter, choose};
use crate::needs::Seen;
use crate::traffic::{Found, kinds};

/// Everything that is said of one interface.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was seen.
    pub seen: Seen,
    /// Kinds of traffic.
    pub kinds: Vec<Found>,
    /// Instance types.
    pub choices: Choices,
    /// What to change before paying.
    pub advice: Vec<Advice>,
}

/// What there is to say of what was seen. `kind` is where flows go, if the reader says so.
pub fn report(seen: Seen, filter: &Filter, kind: Option<FlowKind>) -> Report {
    let kinds = kinds(&seen);
    let choices = choose(&seen.needs, filter, kind);
    let choices = if seen.packets == 0 { choices.without_packets() } else { choices };
    let advice = advice(&seen, &kinds, &choices);
    Report { seen, kinds, choices, advice }
}
