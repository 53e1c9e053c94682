//! The demonstration as tables for a terminal.

use super::story::{Contestant, Goal, Story, size};
use srd_chart::Table;

/// Returns the tables of all parts, and at the end the table of the goals.
pub(super) fn tables(story: &Story, goals: &[Goal]) -> String {
    let parts = [singles(story), incasts(story), failovers(story), programs(story), cloud(story)];
    let sections = parts.into_iter().chain([judged(goals)]);
    sections.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

fn singles(story: &Story) -> String {
    if story.singles.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["(a) one flow", "Mb/s", "ideal", "of ideal"]);
    for single in &story.singles {
        let mbps = single.mbps();
        table.row([
            single.contestant.to_string(),
            mbps.map_or("-".into(), |mbps| format!("{mbps:.0}")),
            format!("{:.0}", story.uplinks_mbps),
            mbps.map_or("-".into(), |mbps| format!("{:.2}", mbps / story.uplinks_mbps)),
        ]);
    }
    format!("\n{table}")
}

fn incasts(story: &Story) -> String {
    let mut text = String::new();
    for incast in &story.incasts {
        let heading = format!("(b) 48 x {} -> 1", size(incast.bytes));
        let mut table = Table::new([
            heading.as_str(),
            "ideal ms",
            "slowest ms",
            "over ideal",
            "worst round",
            "rounds",
            "unfinished",
        ]);
        for run in &incast.runs {
            let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |r| format!("{r:.2}x"));
            let median = run.median_ratio();
            table.row([
                run.contestant.to_string(),
                format!("{:.1}", run.ideal_ms),
                median.map_or("-".into(), |median| format!("{:.1}", median * run.ideal_ms)),
                ratio(median),
                ratio(run.worst_ratio()),
                run.rounds_ms.len().to_string(),
                run.unfinished().to_string(),
            ]);
        }
        text += &format!("\n{table}\n");
    }
    text
}

fn programs(story: &Story) -> String {
    if story.programs.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["(d) a program that knows nothing", "Mb/s", "ideal", "of ideal"]);
    for program in &story.programs {
        table.row([
            program.label().to_owned(),
            format!("{:.0}", program.mbps),
            format!("{:.0}", story.uplinks_mbps),
            format!("{:.2}", program.mbps / story.uplinks_mbps),
        ]);
    }
    format!("\n{table}")
}

fn cloud(story: &Story) -> String {
    let Some(tour) = &story.cloud else { return String::new() };
    let mut table = Table::new(["(e) a VPC on this machine", "here", "should be"]);
    let mut row = |what: &str, here: String, wanted: String| table.row([what.into(), here, wanted]);
    row("curl to an allowed port: status", tour.allowed.clone(), "200".into());
    row("curl to a closed port: exit code", tour.closed.to_string(), "28 (time-out)".into());
    row("a network ACL changed, ms", format!("{:.1}", tour.acknowledged_ms), "-".into());
    row("bytes for the closed port after it", tour.late_bytes.to_string(), "0".into());
    let ((with, without), (peak, baseline)) = (tour.credits_mbps, tour.type_mbps);
    row("c7i.large / 100 with credits, Mb/s", format!("{with:.0}"), format!("{peak:.0}"));
    row("  without, Mb/s", format!("{without:.2}"), format!("{baseline:.2}"));
    format!("\n{table}")
}

fn failovers(story: &Story) -> String {
    if story.failovers.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        "(c) a spine dies",
        "silence ms",
        "ideal",
        "Mb/s before",
        "while it is dead",
        "after healing",
    ]);
    for run in &story.failovers {
        let (dies, heals) = (run.failed_ms, run.healed_ms);
        let end = run.intervals.last().map_or(heals, |(at, _)| *at);
        let mbps = |from, to| format!("{:.0}", run.mbps_between(from, to));
        table.row([
            run.contestant.to_string(),
            run.silence(),
            "0".into(),
            mbps(dies / 2, dies),
            mbps(dies, heals),
            mbps(heals, end),
        ]);
    }
    format!("{table}\n")
}

fn judged(goals: &[Goal]) -> String {
    let mut table = Table::new(["goal", "wanted", "seen", ""]);
    for goal in goals {
        table.row([
            goal.name.clone(),
            goal.wanted.clone(),
            goal.seen.clone(),
            verdict(goal).into(),
        ]);
    }
    table.to_string()
}

/// Returns whether the goal is met, as one word.
pub(super) fn verdict(goal: &Goal) -> &'static str {
    if goal.met { "met" } else { "MISSED" }
}

/// Whether the contestant is SRD with all paths, which tables and charts emphasize.
pub(super) fn is_ours(contestant: Contestant) -> bool {
    contestant == Contestant::Srd
}

#[cfg(test)]
mod tests {
    use super::super::story::tests::story;
    use super::*;

    #[test]
    fn every_figure_stands_beside_its_ideal() {
        let story = story();
        let text = tables(&story, &story.goals());
        for wanted in ["(a) one flow", "TCP cubic, RTO 5 ms", "1.05x", "MISSED", "met", "2900"] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
