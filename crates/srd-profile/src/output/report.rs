//! The full report on one interface.

use serde::Serialize;
use srd_card::limits::FlowKind;

use crate::advice::{Advice, advice};
use crate::choose::{Choices, Filter, choose};
use crate::needs::TrafficSummary;
use crate::traffic::{DetectedKind, kinds};

/// The full report on one interface.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The captured traffic and its needs.
    pub seen: TrafficSummary,
    /// Kinds of the traffic.
    pub kinds: Vec<DetectedKind>,
    /// The instance types that suffice for the traffic, or come near to it.
    pub choices: Choices,
    /// Advice: changes to make before paying for a larger type.
    pub advice: Vec<Advice>,
}

/// Returns the report on the traffic. `kind` is the kind of destination of the flows; `None` means
/// the kind that the flows need.
pub fn report(seen: TrafficSummary, filter: &Filter, kind: Option<FlowKind>) -> Report {
    let kinds = kinds(&seen);
    let choices = choose(&seen.needs, filter, kind);
    let choices = if seen.packets == 0 { choices.without_packets() } else { choices };
    let advice = advice(&seen, &kinds, &choices);
    Report { seen, kinds, choices, advice }
}
