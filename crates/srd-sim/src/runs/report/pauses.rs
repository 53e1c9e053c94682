//! Effects of pauses by lossless switches, as data and as text.

use std::fmt::Write as _;

use serde::Serialize;

use super::columns::{align, row};
use crate::engine::world::{Deadlock, HeldFlow, PauseReport, PausedLink};

/// Largest number of links that are listed; of more, only those that were paused longest.
const LINKS_MAX: usize = 8;

/// A flow that pauses held although it crosses no congested port.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Victim {
    /// Number of the flow.
    pub flow: u32,
    /// The sender.
    pub src: u32,
    /// The receiver.
    pub dst: u32,
    /// Time for which the flow was held.
    pub held_us: f64,
    /// Share of the flow's goodput that pauses took: `held_us` divided by the time from its start
    /// to its end, or to the end of the run.
    pub held_share: f64,
}

/// Effects of pauses in a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pauses {
    /// Pause frames that stopped a port.
    pub frames: u64,
    /// Time for which links were paused, summed over all links.
    pub paused_us: f64,
    /// Links that were paused, the longest pause first.
    pub links: Vec<PausedLink>,
    /// Ports where packets waited for their link, not for a pause, when a switch stopped a sender.
    pub congested: Vec<String>,
    /// Flows that were held, victims included.
    pub held_flows: usize,
    /// Victims; the flow that was held for the largest share of its time is first.
    pub victims: Vec<Victim>,
    /// Ports that wait for each other in a circle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlock: Option<Deadlock>,
}

impl Pauses {
    /// Creates the data of a run. `victim` describes a flow that was held.
    pub(crate) fn new(report: PauseReport, victim: impl Fn(&HeldFlow) -> Victim) -> Self {
        let PauseReport { frames, links, congested, held, deadlock } = report;
        let mut victims: Vec<Victim> = held.iter().filter(|h| h.is_victim).map(victim).collect();
        victims.sort_by(|a, b| b.held_share.total_cmp(&a.held_share));
        // A sum over no links would be a negative zero.
        let paused_us = links.iter().fold(0.0, |sum, link| sum + link.paused_us);
        Self { frames, paused_us, links, congested, held_flows: held.len(), victims, deadlock }
    }

    /// Shares of their time for which victims were held: the median and the largest.
    pub fn victim_shares(&self) -> Option<(f64, f64)> {
        let median = self.victims.get(self.victims.len() / 2)?;
        Some((median.held_share, self.victims.first()?.held_share))
    }

    /// Describes the deadlock, if there is one.
    pub fn deadlock(&self) -> Option<String> {
        let deadlock = self.deadlock.as_ref()?;
        Some(format!(
            "DEADLOCK at {:.1} us: {} wait for each other; {} links will never send again",
            deadlock.at_us,
            deadlock.circle.join(", "),
            deadlock.links
        ))
    }

    /// Describes the pauses in text; `who` names the run.
    pub(super) fn told(&self, who: &str) -> String {
        let mut text = format!(
            "{who}: {} pauses of {} links, {:.1} us in all; {} flows held\n",
            self.frames,
            self.links.len(),
            self.paused_us,
            self.held_flows
        );
        if !self.links.is_empty() {
            let mut rows = vec![row(["  link", "pauses", "paused us"])];
            for link in self.links.iter().take(LINKS_MAX) {
                rows.push(vec![
                    format!("  {}", link.link),
                    link.pauses.to_string(),
                    format!("{:.1}", link.paused_us),
                ]);
            }
            text += &align(&rows);
            let congested = if self.congested.is_empty() {
                "none".to_owned()
            } else {
                let dots = if self.congested.len() > LINKS_MAX { ", ..." } else { "" };
                self.congested[..self.congested.len().min(LINKS_MAX)].join(", ") + dots
            };
            let _ = writeln!(text, "  congested ports: {congested}");
        }
        if let Some((median, most)) = self.victim_shares() {
            let _ = writeln!(
                text,
                "  victims (flows held that cross no full port): {}, held for {:.1} % of their \
                 time in the median, {:.1} % at most",
                self.victims.len(),
                median * 100.0,
                most * 100.0
            );
        }
        if let Some(deadlock) = self.deadlock() {
            let _ = writeln!(text, "  {deadlock}");
        }
        text
    }

    /// Writes a line for every link that was paused.
    pub(super) fn csv(&self) -> String {
        let mut csv = String::from("link,pauses,paused_us\n");
        for PausedLink { link, pauses, paused_us } in &self.links {
            let _ = writeln!(csv, "{link},{pauses},{paused_us:.3}");
        }
        csv
    }
}
