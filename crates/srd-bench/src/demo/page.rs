//! The demonstration as a page with charts: an overview with all parts, and a section for each
//! part.

use super::answer;
use super::show::{is_ours, verdict};
use super::story::{CUBIC, Contestant, Failover, Goal, Incast, IncastRun, Story, size};
use crate::talk::tour::Tour;
use srd_chart::{
    Axis, Bar, BarChart, ChartLine, Colour, Dashes, LineChart, Mark, Page, figure, quantity,
};

/// Largest number of points of one distribution in a chart; more could not be distinguished.
const CDF_POINTS_MAX: usize = 400;
/// Milliseconds before the failure, and after it (`CLOSE_AFTER_MS`), in the enlarged chart.
const CLOSE_BEFORE_MS: u64 = 60;
const CLOSE_AFTER_MS: u64 = 240;

/// Returns the page with the demonstration, as one HTML file.
pub(super) fn page(story: &Story, goals: &[Goal]) -> String {
    let mut page = Page::new("SRD beside kernel TCP, on the same wires");
    overview(&mut page, story, goals);
    singles(&mut page, story);
    incasts(&mut page, story);
    failovers(&mut page, story);
    programs(&mut page, story);
    cloud(&mut page, story);
    page.section("How it was measured");
    page.paragraph(&summary(story));
    story.setting.iter().for_each(|line| page.remark(line));
    page.finish()
}

/// Adds the overview: a sentence, a table of all parts, and the goals.
fn overview(page: &mut Page, story: &Story, goals: &[Goal]) {
    let met = goals.iter().filter(|goal| goal.met).count();
    let is_good = (!goals.is_empty()).then_some(met == goals.len());
    page.verdict(is_good, &answer::verdict(story, goals));
    if story.simulated {
        page.lead("Simulated: this machine lacks what real wires need, or nobody asked for them.");
    }
    let rows: Vec<_> =
        answer::parts(story).into_iter().map(|cells| (false, cells.to_vec())).collect();
    if !rows.is_empty() {
        page.table(&["", "SRD", "kernel TCP (cubic)", "at best"], &rows);
    }
    let rows: Vec<(bool, Vec<String>)> = goals
        .iter()
        .map(|goal| {
            let cells = [&goal.name, &goal.wanted, &goal.seen, &verdict(goal).to_owned()];
            (false, cells.map(Clone::clone).to_vec())
        })
        .collect();
    let table = |page: &mut Page| page.table(&["goal", "wanted", "seen", ""], &rows);
    match goals.len() {
        0 => {}
        all if met == all => page.folded(&format!("The {met} goals that were set, all met"), table),
        _ => table(page),
    }
}

fn summary(story: &Story) -> String {
    let place = if story.simulated {
        "Simulated"
    } else {
        "Real kernels and real sockets in a fabric of network namespaces"
    };
    format!(
        "{place}: one flow over four paths, an incast of 48 flows, and a spine that dies silently. \
         All transports used the same links and queues, one after the other; it took {:.0} s.",
        story.took_s
    )
}

/// Returns a bar chart of goodput, with a mark at the rate of all uplinks together.
fn goodput(title: &str, story: &Story, bars: Vec<Bar>) -> BarChart {
    let at = story.uplinks_mbps;
    let marks = vec![Mark { at, label: "sum of the uplinks".into() }];
    BarChart { title: title.into(), unit: "Mb/s".into(), marks, bars }
}

fn singles(page: &mut Page, story: &Story) {
    if story.singles.is_empty() {
        return;
    }
    page.section("One flow");
    page.lead(&answer::single(story).unwrap_or_default());
    page.paragraph(
        "Four paths lead from one rack to the other, each a quarter as fast as the host's link. \
         Switches keep a TCP flow on one of them. SRD sprays one flow over all.",
    );
    let bars = story.singles.iter().map(|single| Bar {
        label: single.contestant.to_string(),
        colour: single.contestant.colour(),
        value: single.mbps(),
        worst: None,
        runs: single.mbps.clone(),
    });
    let title = "Goodput of one flow by transport, beside the sum of the uplinks";
    let chart = goodput(title, story, bars.collect());
    page.chart("Goodput of one flow: bars are medians, dots are runs", &chart.to_svg());
}

fn programs(page: &mut Page, story: &Story) {
    if story.programs.is_empty() {
        return;
    }
    page.section("A program that knows nothing of it");
    page.lead(&answer::program(story).unwrap_or_default());
    page.paragraph(
        "iperf3 as it is installed, with one TCP connection over the same kind of fabric: over \
         kernel TCP, and between hosts that run srd up, which carries the connection over SRD.",
    );
    let bars = story.programs.iter().map(|program| Bar {
        label: program.label().into(),
        colour: if program.through_srd { Contestant::Srd } else { CUBIC }.colour(),
        value: Some(program.mbps),
        worst: None,
        runs: Vec::new(),
    });
    let chart = goodput("Goodput of iperf3, beside the sum of the uplinks", story, bars.collect());
    page.chart("Goodput of iperf3", &chart.to_svg());
}

fn cloud(page: &mut Page, story: &Story) {
    let Some(tour) = &story.cloud else { return };
    page.section("A VPC on this machine");
    page.lead(&answer::cloud(tour));
    page.paragraph(
        "srd card gives network namespaces what EC2 instances have: a subnet, security groups, \
         network ACLs, and the limits of their type. Connections to ports 80 and 443 run when the \
         network ACL changes to allow port 443 alone; then two flows send until the credits of a \
         c7i.large, at a hundredth of its rates and with credits for 5 s, are spent.",
    );
    let title = "A network ACL changes in mid-transfer: port 80 ends, port 443 goes on";
    page.chart(title, &acl(tour, title).to_svg());
    let title = "Credits run out: from the peak of the type to its baseline";
    page.chart(title, &credits(tour, title).to_svg());
    page.remark(
        "These rates are the sender's: in the first second its socket buffers and the queue of its \
         interface fill as well, so that it exceeds what the card lets pass.",
    );
}

fn acl(tour: &Tour, title: &str) -> LineChart {
    let both = tour.changed.iter().zip([Colour::Orange, Colour::Blue]);
    let lines = both.map(|((label, points), colour)| line_of(label, colour, points)).collect();
    let marks = vec![Mark { at: tour.changed_s, label: "the ACL allows 443 alone".into() }];
    LineChart { marks, ..rates(title, lines, Vec::new()) }
}

fn credits(tour: &Tour, title: &str) -> LineChart {
    // Each value is drawn at the beginning of the second to which it belongs.
    let mut points = tour.spent.clone();
    points.extend(tour.spent.last().map(|(at, mbps)| (at + 1.0, *mbps)));
    let (peak, baseline) = tour.type_mbps;
    let level = |at, name: &str| Mark { at, label: format!("{name}: {}", quantity(at, "Mb/s")) };
    let levels = vec![level(peak, "peak of the type"), level(baseline, "baseline")];
    let marks = vec![Mark { at: tour.credits_s, label: "the credits are spent".into() }];
    let lines = vec![line_of("both flows", Colour::Blue, &points)];
    LineChart { marks, ..rates(title, lines, levels) }
}

fn line_of(label: &str, colour: Colour, points: &[(f64, f64)]) -> ChartLine {
    let (label, points) = (label.to_owned(), points.to_vec());
    ChartLine { label, colour, dashes: Dashes::Solid, faint: false, points }
}

/// Returns a line chart of rates in Mb/s over seconds.
fn rates(title: &str, lines: Vec<ChartLine>, levels: Vec<Mark>) -> LineChart {
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
    let y = levels.iter().map(|level| level.at).fold(most(|point| point.1), f64::max);
    LineChart {
        title: title.into(),
        height: 220.0,
        x: Axis::linear("seconds", 0.0, most(|point| point.0)),
        y: Axis::linear("Mb/s", 0.0, y * 1.15),
        lines,
        marks: Vec::new(),
        levels,
        steps: true,
    }
}

fn incasts(page: &mut Page, story: &Story) {
    if story.incasts.is_empty() {
        return;
    }
    page.section("Incast");
    page.lead(&answer::incast(story).unwrap_or_default());
    page.paragraph(
        "Four hosts start twelve flows each towards one host, all at one moment. The last flow \
         decides when a job goes on. The ideal is what the receiver's link needs for the bytes of \
         all flows, each transport's own headers included, plus one round trip.",
    );
    for incast in &story.incasts {
        page.chart(
            &format!(
                "Slowest of 48 flows of {} over the ideal: median round, and the worst one",
                size(incast.bytes)
            ),
            &incast_bars(incast).to_svg(),
        );
        page.chart(
            &format!("When flows of {} are complete: share of all flows", size(incast.bytes)),
            &incast_distribution(incast).to_svg(),
        );
        let rows: Vec<_> = incast.runs.iter().map(incast_row).collect();
        page.table(
            &["", "ideal", "median flow", "slowest, median round", "worst round", "rounds"],
            &rows,
        );
    }
}

fn incast_bars(incast: &Incast) -> BarChart {
    let bars = incast.runs.iter().map(|run| Bar {
        label: run.contestant.to_string(),
        colour: run.contestant.colour(),
        value: run.median_ratio(),
        worst: run.worst_ratio(),
        runs: Vec::new(),
    });
    BarChart {
        title: format!("Slowest flow over the ideal, {} flows", size(incast.bytes)),
        unit: "x".into(),
        marks: vec![Mark { at: 1.0, label: "ideal".into() }],
        bars: bars.collect(),
    }
}

fn incast_distribution(incast: &Incast) -> LineChart {
    let lines: Vec<ChartLine> = incast.runs.iter().map(distribution).collect();
    let times = || lines.iter().flat_map(|line| line.points.iter().map(|(ms, _)| *ms));
    let ideal = incast.runs.iter().find(|run| is_ours(run.contestant)).or(incast.runs.first());
    // If only some flows finished, the ideal may be beyond all of their times.
    let ideal_ms = ideal.map_or(0.0, |run| run.ideal_ms);
    let (least, most) = (times().fold(f64::MAX, f64::min), times().fold(ideal_ms, f64::max));
    let mark = |run: &IncastRun| Mark { at: run.ideal_ms, label: "ideal".into() };
    LineChart {
        title: format!("Distribution of completion times, {} flows", size(incast.bytes)),
        height: 220.0,
        x: Axis::log("completion time, ms", least.min(most) * 0.9, most * 1.1),
        y: Axis::linear("share of flows", 0.0, 1.0),
        lines,
        marks: ideal.map(mark).into_iter().collect(),
        levels: Vec::new(),
        steps: true,
    }
}

fn distribution(run: &IncastRun) -> ChartLine {
    let times = run.fct_ms();
    let all = times.len() + run.unfinished();
    let step = times.len().div_ceil(CDF_POINTS_MAX).max(1);
    let mut points: Vec<(f64, f64)> = times.first().map(|ms| (*ms, 0.0)).into_iter().collect();
    for (number, ms) in times.iter().enumerate() {
        if (number + 1) % step == 0 || number + 1 == times.len() {
            points.push((*ms, (number + 1) as f64 / all as f64));
        }
    }
    ChartLine { dashes: run.contestant.dashes(), ..line(run.contestant, points) }
}

fn incast_row(run: &IncastRun) -> (bool, Vec<String>) {
    let ms = |ratio: Option<f64>| {
        ratio.map_or("-".into(), |r| format!("{:.1} ms ({r:.2}x)", r * run.ideal_ms))
    };
    let times = run.fct_ms();
    let median = times.get(times.len() / 2).map_or("-".into(), |ms| format!("{ms:.1} ms"));
    let rounds = match run.unfinished() {
        0 => run.rounds_ms.len().to_string(),
        1 => format!("{}, 1 flow unfinished", run.rounds_ms.len()),
        n => format!("{}, {n} flows unfinished", run.rounds_ms.len()),
    };
    let cells = vec![
        run.contestant.to_string(),
        format!("{:.1} ms", run.ideal_ms),
        median,
        ms(run.median_ratio()),
        ms(run.worst_ratio()),
        rounds,
    ];
    (is_ours(run.contestant), cells)
}

fn failovers(page: &mut Page, story: &Story) {
    if story.failovers.is_empty() {
        return;
    }
    page.section("A spine dies");
    page.lead(&answer::failover(story).unwrap_or_default());
    page.paragraph(
        "While one flow runs at full speed, the spine that carries it (with several paths, most of \
         it) begins to swallow packets. No link goes down and nobody is told. Later it heals.",
    );
    for run in &story.failovers {
        let caption = format!(
            "{}: nothing arrives for {}; {} while the spine is dead",
            run.contestant,
            answer::silence(run),
            quantity(run.mbps_between(run.failed_ms, run.healed_ms), "Mb/s")
        );
        page.chart(&caption, &timeline(run, story.uplinks_mbps).to_svg());
    }
    if let Some(run) = story.failovers.iter().find(|run| run.contestant == Contestant::Srd) {
        let caption = "SRD around the moment of death, in steps of one interval";
        page.chart(caption, &close_view(run, story.uplinks_mbps).to_svg());
    }
}

/// Returns the chart of a whole failover run. Each step is the mean of ten intervals, because
/// single intervals would not be visible.
fn timeline(run: &Failover, most_mbps: f64) -> LineChart {
    let points = run.intervals.chunks(10).filter_map(|chunk| {
        let from = chunk.first()?.0;
        let to = chunk.last()?.0 + run.interval_ms;
        Some((from as f64 / 1e3, run.mbps_between(from, to)))
    });
    let end = run.intervals.last().map_or(1.0, |(at, _)| *at as f64 / 1e3);
    LineChart {
        title: format!("Throughput of {} over time", run.contestant),
        height: 110.0,
        x: Axis::linear("seconds", 0.0, end),
        y: Axis::linear("Mb/s", 0.0, most_mbps * 1.3),
        lines: vec![line(run.contestant, points.collect())],
        marks: vec![
            Mark { at: run.failed_ms as f64 / 1e3, label: "the spine dies".into() },
            Mark { at: run.healed_ms as f64 / 1e3, label: "it heals".into() },
        ],
        levels: vec![all_paths(most_mbps)],
        steps: true,
    }
}

fn close_view(run: &Failover, most_mbps: f64) -> LineChart {
    let from = run.failed_ms.saturating_sub(CLOSE_BEFORE_MS);
    let to = run.failed_ms + CLOSE_AFTER_MS;
    let mbps = |bytes: u64| bytes as f64 * 8.0 / 1e3 / run.interval_ms.max(1) as f64;
    let near = run.intervals.iter().filter(|(at, _)| (from..to).contains(at));
    let since = |at: u64| at as f64 - run.failed_ms as f64;
    let points: Vec<(f64, f64)> = near.map(|(at, bytes)| (since(*at), mbps(*bytes))).collect();
    let peak = points.iter().map(|(_, mbps)| *mbps).fold(most_mbps, f64::max);
    LineChart {
        title: "SRD's throughput around the failure".into(),
        height: 140.0,
        x: Axis::linear("ms since the spine died", since(from), since(to)),
        y: Axis::linear("Mb/s", 0.0, peak * 1.2),
        lines: vec![line(run.contestant, points)],
        marks: vec![Mark { at: 0.0, label: "the spine dies".into() }],
        levels: vec![all_paths(most_mbps)],
        steps: true,
    }
}

fn all_paths(at: f64) -> Mark {
    Mark { at, label: format!("all paths: {} Mb/s", figure(at)) }
}

fn line(contestant: Contestant, points: Vec<(f64, f64)>) -> ChartLine {
    let (colour, dashes) = (contestant.colour(), Dashes::Solid);
    ChartLine { label: contestant.to_string(), colour, dashes, faint: false, points }
}

#[cfg(test)]
mod tests {
    use super::super::story::tests::story;
    use super::*;
    use srd_chart::check_well_formed;

    #[test]
    fn the_report_is_one_well_formed_file() {
        let story = story();
        let html = page(&story, &story.goals());
        check_well_formed(html.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
        assert!(!html.contains("http:") && !html.contains("https:"));
        assert!(html.contains("2 leaves &amp; &lt;4&gt; spines"));
        assert_eq!(html.matches("<figure>").count(), 9);
    }

    #[test]
    fn regression_the_answer_comes_first_and_marks_say_what_happened() {
        let mut story = story();
        let tour = story.cloud.as_mut().unwrap();
        let points = vec![(0.0, 100.0), (1.0, 90.0)];
        tour.changed =
            vec![("port 80".into(), points.clone()), ("port 443".into(), points.clone())];
        (tour.changed_s, tour.credits_s, tour.spent) = (0.5, 1.0, points);
        let html = page(&story, &story.goals()).replace('\u{a0}', " ");
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("no `{text}` in\n{html}"));
        let verdict = at("<p class=\"verdict bad\">One SRD flow carries 950 Mb/s, 3.91 times");
        assert!(verdict < at("<td>one flow</td><td>950 Mb/s</td><td>243 Mb/s</td><td>1000 Mb/s"));
        assert!(at(">MISSED<") < at("<h2>One flow</h2>"), "what was missed is not folded");
        assert!(at("How it was measured") > at("A VPC on this machine"));
        for mark in [
            ">the ACL allows 443 alone<",
            ">the credits are spent<",
            ">peak of the type: 125 Mb/s<",
            ">baseline: 7.81 Mb/s<",
            ">the spine dies<",
            ">all paths: 1000 Mb/s<",
        ] {
            assert!(html.contains(mark), "no {mark} in\n{html}");
        }
        assert!(html.contains("1 flow unfinished") && !html.contains("1 flows"), "{html}");
    }

    #[test]
    fn a_story_without_figures_is_still_a_page() {
        let mut story = story();
        story.singles.clear();
        story.failovers.clear();
        story.incasts[0].runs.iter_mut().for_each(|run| run.rounds_ms.clear());
        let html = page(&story, &story.goals());
        check_well_formed(html.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
    }

    /// In an earlier version, a page without goals contained the text that all of them were met,
    /// and the ideal of an incast was at the end of the axis if it was beyond the times of all
    /// flows.
    #[test]
    fn regression_what_was_not_measured_is_not_shown_as_good() {
        let none = Story::default();
        assert!(!page(&none, &none.goals()).contains("all met"));
        let mut story = story();
        story.incasts[0].runs.iter_mut().for_each(|run| run.ideal_ms = 5_000.0);
        let chart = incast_distribution(&story.incasts[0]);
        assert!(chart.marks[0].at < chart.x.max, "{} of {}", chart.marks[0].at, chart.x.max);
    }

    #[test]
    fn unfinished_flows_keep_the_distribution_below_one() {
        let run = &story().incasts[0].runs[0];
        let last = distribution(run).points.last().copied().unwrap();
        assert!((last.1 - 5.0 / 6.0).abs() < 1e-9);
    }
}
