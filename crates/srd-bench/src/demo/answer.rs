//! The results of the demonstration in sentences: one for each part, with the ratio of SRD to
//! kernel TCP.

use super::story::{CUBIC, Contestant, Failover, Goal, IncastRun, Story, size};
use crate::talk::tour::Tour;
use srd_chart::{Unit, figure, quantity};

/// Returns the main result in a sentence, followed by the number of goals that are met or missed.
pub(super) fn verdict(story: &Story, goals: &[Goal]) -> String {
    let first = single(story)
        .or_else(|| incast(story))
        .or_else(|| failover(story))
        .or_else(|| program(story))
        .or_else(|| story.cloud.as_ref().map(cloud));
    let first = first.unwrap_or_else(|| "Nothing was measured.".to_owned());
    let missed = goals.iter().filter(|goal| !goal.met).count();
    match (goals.len(), missed) {
        (0, _) => first,
        (all, 0) => format!("{first} All {all} goals are met."),
        (all, missed) => format!("{first} {missed} of {all} goals are missed."),
    }
}

/// Returns a table row for each part: its name, the figure of SRD, the figure of kernel TCP, and
/// the best possible figure.
pub(super) fn parts(story: &Story) -> Vec<[String; 4]> {
    let mut parts = Vec::new();
    if !story.singles.is_empty() {
        let both = [Contestant::Srd, CUBIC].map(|contestant| of_single(story, contestant));
        parts.push(row("one flow".into(), "Mb/s", both, story.uplinks_mbps));
    }
    for incast in &story.incasts {
        let of = |contestant| incast.runs.iter().find(|run| run.contestant == contestant);
        let ms = |run: &IncastRun| Some(run.median_ratio()? * run.ideal_ms);
        let ideal = of(Contestant::Srd).or(incast.runs.first()).map_or(0.0, |run| run.ideal_ms);
        let what = format!("slowest of 48 flows of {}", size(incast.bytes));
        let both = [Contestant::Srd, CUBIC].map(|contestant| of(contestant).and_then(ms));
        parts.push(row(what, "ms", both, ideal));
    }
    if !story.failovers.is_empty() {
        let of = |contestant| of_failover(story, contestant).map_or("-".into(), silence);
        let what = "a spine dies: nothing arrives for".to_owned();
        parts.push([what, of(Contestant::Srd), of(CUBIC), "0 ms".to_owned()]);
    }
    if !story.programs.is_empty() {
        let both = [true, false].map(|through_srd| of_program(story, through_srd));
        parts.push(row("iperf3, one connection".into(), "Mb/s", both, story.uplinks_mbps));
    }
    parts
}

/// Formats the figures of SRD and of kernel TCP and the best possible figure in one unit.
fn row(what: String, unit: &str, both: [Option<f64>; 2], best: f64) -> [String; 4] {
    let unit = Unit::fitting(unit, both.into_iter().flatten().chain([best]));
    let [srd, tcp] = both.map(|figure| figure.map_or("-".to_owned(), |value| unit.show(value)));
    [what, srd, tcp, unit.show(best)]
}

/// Returns a sentence about part (a) of the demonstration, one flow; `None` if a figure of it is
/// missing.
pub(super) fn single(story: &Story) -> Option<String> {
    let srd = of_single(story, Contestant::Srd)?;
    let tcp = of_single(story, CUBIC)?;
    let unit = Unit::fitting("Mb/s", [srd, tcp, story.uplinks_mbps]);
    Some(format!(
        "One SRD flow carries {}, {} times the {} of a flow of kernel TCP; all paths together have \
         {}.",
        unit.show(srd),
        figure(srd / tcp),
        unit.show(tcp),
        unit.show(story.uplinks_mbps)
    ))
}

/// Returns a sentence about part (b) of the demonstration, the incast with the largest flows;
/// `None` if a figure of it is missing.
pub(super) fn incast(story: &Story) -> Option<String> {
    let incast = story.incasts.iter().max_by_key(|incast| incast.bytes)?;
    let of = |contestant| {
        let run = incast.runs.iter().find(|run| run.contestant == contestant)?;
        let ratio = run.median_ratio()?;
        Some((quantity(ratio * run.ideal_ms, "ms"), figure(ratio)))
    };
    let ((srd, srd_ratio), (tcp, tcp_ratio)) = (of(Contestant::Srd)?, of(CUBIC)?);
    Some(format!(
        "With SRD the slowest of 48 flows of {} is complete after {srd}, {srd_ratio} times the \
         ideal; with kernel TCP after {tcp}, {tcp_ratio} times the ideal.",
        size(incast.bytes)
    ))
}

/// Returns a sentence about part (c), the failure of a spine.
pub(super) fn failover(story: &Story) -> Option<String> {
    let srd = of_failover(story, Contestant::Srd)?;
    let tcp = of_failover(story, CUBIC)?;
    let ratio = match srd.silence_ms {
        0 => String::new(),
        ms => format!(", {} times as long", figure(tcp.silence_ms as f64 / ms as f64)),
    };
    Some(format!(
        "When a spine dies, nothing arrives for {} with SRD, and for {} with kernel TCP{ratio}.",
        silence(srd),
        silence(tcp)
    ))
}

/// Returns a sentence about part (d), an ordinary program.
pub(super) fn program(story: &Story) -> Option<String> {
    let (srd, tcp) = (of_program(story, true)?, of_program(story, false)?);
    Some(format!(
        "One connection of iperf3 carries {} through srd up, {} times the {} over kernel TCP.",
        quantity(srd, "Mb/s"),
        figure(srd / tcp),
        quantity(tcp, "Mb/s")
    ))
}

/// Returns a sentence about part (e), a virtual private cloud.
pub(super) fn cloud(tour: &Tour) -> String {
    let ((with, without), (peak, baseline)) = (tour.credits_mbps, tour.type_mbps);
    let late = match tour.late_bytes {
        0 => "no byte".to_owned(),
        bytes => quantity(bytes as f64, "B"),
    };
    format!(
        "The network ACL changes in {}: {late} for the closed port arrives later, and the open \
         port keeps {} times its rate. With credits the flows have {} (the type: {}), \
         without them {} (the type: {}).",
        quantity(tour.acknowledged_ms, "ms"),
        figure(tour.open_share),
        quantity(with, "Mb/s"),
        quantity(peak, "Mb/s"),
        quantity(without, "Mb/s"),
        quantity(baseline, "Mb/s")
    )
}

/// Formats the time without a byte in a failover, with its unit. A measured value of zero means
/// that this time was shorter than an interval; the text is then "less than" the interval.
pub(super) fn silence(run: &Failover) -> String {
    match run.silence_ms {
        0 => format!("less than {} ms", run.interval_ms),
        ms @ 1..1000 => format!("{ms} ms"),
        ms => quantity(ms as f64, "ms"),
    }
}

fn of_single(story: &Story, contestant: Contestant) -> Option<f64> {
    story.singles.iter().find(|single| single.contestant == contestant)?.mbps()
}

fn of_failover(story: &Story, contestant: Contestant) -> Option<&Failover> {
    story.failovers.iter().find(|run| run.contestant == contestant)
}

fn of_program(story: &Story, through_srd: bool) -> Option<f64> {
    let found = story.programs.iter().find(|program| program.through_srd == through_srd);
    found.map(|program| program.mbps)
}

#[cfg(test)]
mod tests {
    use super::super::story::tests::story;
    use super::*;

    #[test]
    fn each_part_is_a_sentence_with_a_ratio() {
        let story = story();
        for (text, wanted) in [
            (single(&story), "950 Mb/s, 3.91 times the 243 Mb/s"),
            (incast(&story), "after 105 ms, 1.05 times the ideal; with kernel TCP after 400 ms"),
            (failover(&story), "25 ms with SRD, and for 2.90 s with kernel TCP, 116 times"),
            (program(&story), "917 Mb/s through srd up, 3.71 times the 247 Mb/s"),
            (story.cloud.as_ref().map(cloud), "no byte for the closed port"),
        ] {
            let text = text.unwrap();
            assert!(text.contains(wanted), "{wanted} is not in {text}");
        }
        assert!(verdict(&story, &story.goals()).ends_with("2 of 9 goals are missed."));
        let only = Story { cloud: story.cloud.clone(), ..Story::default() };
        assert!(verdict(&only, &[]).starts_with("The network ACL changes in"));
        assert_eq!(parts(&story).len(), 4);
    }

    #[test]
    fn a_silence_that_is_not_seen_is_not_zero() {
        let mut story = story();
        story.failovers[1].silence_ms = 0;
        assert_eq!(silence(&story.failovers[1]), "less than 5 ms");
        assert!(failover(&story).unwrap().ends_with("with kernel TCP."));
    }
}
