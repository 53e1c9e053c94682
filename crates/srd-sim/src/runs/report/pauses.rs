//! Effects of pause frames by lossless switches, as data and as text.

use std::fmt::Write as _;

use serde::Serialize;

use super::columns::{align, row};
use super::median;
use crate::engine::world::{Deadlock, HeldFlow, PauseReport, PausedLink};

/// Largest number of links that are listed: those that were paused longest.
const LINKS_MAX: usize = 8;

/// A victim: a flow that pauses held although no congested port is on its path.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Victim {
    /// Number of the flow.
    pub flow: u32,
    /// Number of the host that sends the flow.
    pub src: u32,
    /// Number of the host that receives the flow.
    pub dst: u32,
    /// Time for which pauses held the flow, in microseconds.
    pub held_us: f64,
    /// Share of the flow's duration for which pauses held it: `held_us` divided by the time from
    /// its start to its end, or to the end of the run.
    pub held_share: f64,
}

/// Effects of pauses in a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pauses {
    /// Number of pause frames that began a pause.
    pub frames: u64,
    /// Time for which links were paused in microseconds, summed over all links.
    pub paused_us: f64,
    /// Links that were paused, the link with the longest total pause first.
    pub links: Vec<PausedLink>,
    /// Names of the congested ports. Their packets waited for the link alone, and not for a pause,
    /// when a switch paused a sender.
    pub congested: Vec<String>,
    /// Number of flows that pauses held, victims included.
    pub held_flows: usize,
    /// Flows that were held although no congested port is on their path. The flow that was held for
    /// the largest share of its duration is first.
    pub victims: Vec<Victim>,
    /// Ports that wait for each other in a circle; `None` if there was no deadlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlock: Option<Deadlock>,
}

impl Pauses {
    /// Creates the data of a run from the world's report. `victim` returns the description of a
    /// held flow.
    pub(crate) fn new(report: PauseReport, victim: impl Fn(&HeldFlow) -> Victim) -> Self {
        let PauseReport { frames, links, congested, held, deadlock } = report;
        let mut victims: Vec<Victim> = held.iter().filter(|h| h.is_victim).map(victim).collect();
        victims.sort_by(|a, b| b.held_share.total_cmp(&a.held_share));
        // `sum` of no values would return a negative zero.
        let paused_us = links.iter().fold(0.0, |sum, link| sum + link.paused_us);
        Self { frames, paused_us, links, congested, held_flows: held.len(), victims, deadlock }
    }

    /// Returns the shares of their duration for which victims were held: the median and the
    /// largest. `None` if there are no victims.
    pub fn victim_shares(&self) -> Option<(f64, f64)> {
        let shares: Vec<f64> = self.victims.iter().map(|victim| victim.held_share).collect();
        Some((median(&shares)?, *shares.first()?))
    }

    /// Returns a description of the deadlock; `None` if there was no deadlock.
    pub fn deadlock(&self) -> Option<String> {
        let deadlock = self.deadlock.as_ref()?;
        Some(format!(
            "DEADLOCK at {:.1} us: {} wait for each other; {} links will never send again",
            deadlock.at_us,
            deadlock.circle.join(", "),
            deadlock.links
        ))
    }

    /// Returns a description of the pauses as text. `who` names the run.
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

    /// Returns the paused links as CSV: name, number of pauses, and time in microseconds.
    pub(super) fn csv(&self) -> String {
        let mut csv = String::from("link,pauses,paused_us\n");
        for PausedLink { link, pauses, paused_us } in &self.links {
            let _ = writeln!(csv, "{link},{pauses},{paused_us:.3}");
        }
        csv
    }
}
