//! What pauses of lossless switches did, for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;

use super::columns::{align, row};
use crate::world::{Deadlock, HeldFlow, PauseReport, PausedLink};

/// Links that are told of each; of more, only the longest paused.
const LINKS_MAX: usize = 8;

/// A flow that pauses held although it crosses no congested port.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Victim {
    /// Its number.
    pub flow: u32,
    /// The sender.
    pub src: u32,
    /// The receiver.
    pub dst: u32,
    /// How long it was held.
    pub held_us: f64,
    /// That over the time from its start to its end, or to the end of the run: the share of its
    /// goodput that pauses took.
    pub held_share: f64,
}

/// What pauses did in a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pauses {
    /// Pause frames that stopped a port.
    pub frames: u64,
    /// How long all links together were paused.
    pub paused_us: f64,
    /// Links that were paused, the longest first.
    pub links: Vec<PausedLink>,
    /// Ports where packets waited for their link, not for a pause, when a switch stopped a sender.
    pub congested: Vec<String>,
    /// Flows that were held, victims included.
    pub held_flows: usize,
    /// The victims, the one that was held for the largest share of its time first.
    pub victims: Vec<Victim>,
    /// Ports that wait for each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadlock: Option<Deadlock>,
}

impl Pauses {
    /// Those of a run. `victim` tells what became of a flow that was held.
    pub(crate) fn new(report: PauseReport, victim: impl Fn(&HeldFlow) -> Victim) -> Self {
        let PauseReport { frames, links, congested, held, deadlock } = report;
        let mut victims: Vec<Victim> = held.iter().filter(|h| h.is_victim).map(victim).collect();
        victims.sort_by(|a, b| b.held_share.total_cmp(&a.held_share));
        // A sum of nothing would be a negative zero.
        let paused_us = links.iter().fold(0.0, |sum, link| sum + link.paused_us);
        Self { frames, paused_us, links, congested, held_flows: held.len(), victims, deadlock }
    }

    /// The shares of their time for which victims were held: the median and the largest.
    pub fn victim_shares(&self) -> Option<(f64, f64)> {
        let median = self.victims.get(self.victims.len() / 2)?;
        Some((median.held_share, self.victims.first()?.held_share))
    }

    /// The deadlock in words, if there is one.
    pub fn deadlock(&self) -> Option<String> {
        let deadlock = self.deadlock.as_ref()?;
        Some(format!(
            "DEADLOCK at {:.1} us: {} wait for each other; {} links will never send again",
            deadlock.at_us,
            deadlock.circle.join(", "),
            deadlock.links
        ))
    }

    /// The same for people.
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

    /// Every link that was paused as a line.
    pub(super) fn csv(&self) -> String {
        let mut csv = String::from("link,pauses,paused_us\n");
        for PausedLink { link, pauses, paused_us } in &self.links {
            let _ = writeln!(csv, "{link},{pauses},{paused_us:.3}");
        }
        csv
    }
}
