//! Charts of the results of runs.

use crate::engine::world::{Series, US};
use crate::runs::run::RunResult;
use srd_chart::{Axis, ChartLine, Colour, Dashes, LineChart, Mark, nth, number};

/// Largest number of points in a line over time. Finer series are averaged.
const POINTS_MAX: usize = 400;
/// Largest number of points in each line over time, if a chart has many lines.
const POINTS_OF_MANY_MAX: usize = 130;
/// Largest number of steps in a distribution curve.
const STEPS_MAX: usize = 1000;
/// Largest number of lines in a chart of many flows or ports.
const CROWD_MAX: usize = 96;
/// Largest number of flows in a chart for which each flow has a colour and a name.
const NAMED_MAX: usize = 12;

/// Length of the time axis from which a chart uses milliseconds instead of microseconds.
const MILLISECONDS_FROM_US: f64 = 20_000.0;

/// Height of the plot area in all charts, in SVG units.
pub(super) const HEIGHT: f64 = 320.0;

/// A chart with a subtitle, which describes the run.
pub(super) struct Chart {
    pub(super) drawn: LineChart,
    pub(super) subtitle: String,
}

impl Chart {
    /// Returns the chart as the content of an SVG file.
    pub(super) fn file(&self) -> String {
        self.drawn.to_file(&self.subtitle)
    }
}

/// Returns the style of a transport's line, which is equal in every chart. A line that may overlap
/// SRD's line is dashed, so that both lines are visible.
pub(super) fn style(transport: &str) -> (Colour, Dashes) {
    match transport {
        "srd" => (Colour::Blue, Dashes::Solid),
        "tcp" => (Colour::Orange, Dashes::Solid),
        "dctcp" => (Colour::Green, Dashes::Solid),
        "srd-single" => (Colour::Pink, Dashes::Long),
        "srd-blind" => (Colour::Ochre, Dashes::Short),
        "express" => (Colour::Blue, Dashes::Long),
        "roce" => (Colour::Green, Dashes::Long),
        "roce-pfc" => (Colour::Green, Dashes::Short),
        "efa" => (Colour::Pink, Dashes::Short),
        _ => (Colour::Grey, Dashes::Solid),
    }
}

pub(super) fn line(
    label: impl Into<String>,
    style: (Colour, Dashes),
    points: Vec<(f64, f64)>,
) -> ChartLine {
    ChartLine { label: label.into(), colour: style.0, dashes: style.1, faint: false, points }
}

/// Returns the text of a time, in the unit of an axis that ends at `end_us`.
fn time(us: f64, end_us: f64) -> String {
    if end_us < MILLISECONDS_FROM_US {
        format!("{} us", number(us))
    } else {
        format!("{} ms", number(us / 1e3))
    }
}

/// Converts the time axis of a chart to milliseconds if its times are long.
fn readable(mut chart: LineChart) -> LineChart {
    if chart.x.max < MILLISECONDS_FROM_US {
        return chart;
    }
    let small = |us: &mut f64| *us *= 1e-3;
    chart.x.label = chart.x.label.replace("(us)", "(ms)");
    small(&mut chart.x.min);
    small(&mut chart.x.max);
    chart.marks.iter_mut().for_each(|mark| small(&mut mark.at));
    let points = chart.lines.iter_mut().flat_map(|line| &mut line.points);
    points.for_each(|point| small(&mut point.0));
    chart
}

fn subtitle(result: &RunResult) -> String {
    format!("{}, seed {}, {} flows", result.transport, result.seed, result.flows)
}

/// Returns a chart of the flow completion times of each transport, over all seeds, and of the
/// ideal. `None` if no flow finished.
pub(super) fn completion(results: &[&RunResult]) -> Option<Chart> {
    let mut transports: Vec<&str> = Vec::new();
    for result in results {
        if !transports.contains(&result.transport) {
            transports.push(result.transport);
        }
    }
    // The share is one of all flows that have an end: a curve of unfinished flows ends below 100 %.
    let of = |transport: &str| -> Vec<(f64, f64)> {
        let mine = results.iter().filter(|r| r.transport == transport);
        let mine: Vec<_> =
            mine.flat_map(|r| &r.flow_records).filter(|f| f.bytes.is_some()).collect();
        let mut times: Vec<f64> = mine.iter().filter_map(|f| f.fct_us).collect();
        times.sort_by(f64::total_cmp);
        distribution(&times, mine.len())
    };
    let curve = |transport: &&str| line(*transport, style(transport), of(transport));
    let lines: Vec<ChartLine> =
        transports.iter().map(curve).filter(|l| !l.points.is_empty()).collect();
    let first = *results.first()?;
    let ideal = first.ideal_wire_us;
    let times = || lines.iter().flat_map(|l| &l.points).map(|p| p.0);
    if lines.is_empty() {
        return None;
    }
    let min = times().fold(ideal, f64::min);
    let max = times().fold(ideal, f64::max);
    // Flows that start at different times have different ideals. Then the chart shows the longest
    // ideal.
    let same = first.flow_records.iter().all(|f| (f.ideal_us - ideal).abs() < ideal * 1e-6);
    let what = if same { "ideal" } else { "longest ideal" };
    let drawn = readable(LineChart {
        title: format!("{}: flow completion times", first.scenario),
        height: HEIGHT,
        x: Axis::fitting("flow completion time (us)", min, max),
        y: Axis::linear("share of flows (%)", 0.0, 100.0),
        lines,
        marks: vec![Mark { at: ideal, label: format!("{what} {}", time(ideal, max)) }],
        levels: Vec::new(),
        steps: true,
    });
    Some(Chart {
        drawn,
        subtitle: format!("share of flows done by then; {} flows a run", first.flows),
    })
}

/// Returns the points of the cumulative distribution of sorted values, which are those of `all`
/// items that have a value. A point is a value, and the percentage of items with values up to it.
fn distribution(sorted: &[f64], all: usize) -> Vec<(f64, f64)> {
    let Some(&first) = sorted.first() else { return Vec::new() };
    let stride = sorted.len().div_ceil(STEPS_MAX);
    let share = |n: usize| (n + 1) as f64 * 100.0 / all as f64;
    let mut points = vec![(first, 0.0)];
    let last = sorted.len() - 1;
    let some = (0..sorted.len()).filter(|n| n % stride == stride - 1 || *n == last);
    points.extend(some.map(|n| (sorted[n], share(n))));
    points
}

/// Returns the points of a series over time: time in microseconds, and value. Values are averaged
/// so that there are at most `points_max` points.
fn over_time(series: &Series, values: &[f64], points_max: usize) -> Vec<(f64, f64)> {
    let stride = values.len().div_ceil(points_max).max(1);
    let at_us = |n: usize| series.at_ps[n] as f64 / US as f64;
    let one = |(n, group): (usize, &[f64])| {
        let last = n * stride + group.len() - 1;
        (at_us(last), group.iter().sum::<f64>() / group.len() as f64)
    };
    values.chunks(stride).enumerate().map(one).collect()
}

/// Returns one column of a table of samples, with its values multiplied by `scale`.
fn column(rows: &[Vec<u64>], n: usize, scale: f64) -> Vec<f64> {
    rows.iter().map(|row| row[n] as f64 * scale).collect()
}

/// Returns marks at the faults and repairs up to the end of a time axis.
fn fault_marks(result: &RunResult, end_us: f64) -> Vec<Mark> {
    let mut marks = Vec::new();
    for fault in &result.recoveries {
        marks.push(Mark { at: fault.at_us, label: format!("{} breaks", fault.links) });
        if let Some(at) = fault.until_us.filter(|us| *us <= end_us) {
            marks.push(Mark { at, label: "repaired".to_owned() });
        }
    }
    marks
}

/// Returns a chart over time of the given lines, with a horizontal mark at the largest possible
/// value. `None` if no line has a point.
fn timeline(
    result: &RunResult,
    title: &str,
    y: &str,
    lines: Vec<ChartLine>,
    level: Option<Mark>,
) -> Option<Chart> {
    let points = || lines.iter().flat_map(|l| &l.points);
    let end = points().map(|p| p.0).reduce(f64::max)?;
    let top = points().map(|p| p.1).fold(level.as_ref().map_or(0.0, |l| l.at), f64::max);
    let drawn = readable(LineChart {
        title: format!("{}: {title}", result.scenario),
        height: HEIGHT,
        x: Axis::linear("time (us)", 0.0, end),
        y: Axis::linear(y, 0.0, top * 1.05),
        marks: fault_marks(result, end),
        levels: level.into_iter().collect(),
        lines,
        steps: false,
    });
    Some(Chart { drawn, subtitle: subtitle(result) })
}

/// Returns a mark at the limit that the hosts' links set; `None` if the limit is 0.
fn at_best(gbps: f64, what: &str) -> Option<Mark> {
    (gbps > 0.0).then(|| Mark { at: gbps, label: format!("{what}: {} Gb/s", number(gbps)) })
}

/// Returns a chart of each flow's goodput over time. With many flows it shows a selection of flows,
/// and the average flow. `None` if goodput was not recorded.
pub(super) fn throughput(result: &RunResult) -> Option<Chart> {
    let series = result.series.as_ref()?;
    let flows = series.flow_bytes.first()?.len();
    let many = flows > NAMED_MAX;
    let to_gbps = 8e3 / series.interval_ps as f64;
    let one = |n: usize| {
        let f = &result.flow_records[n];
        let points = over_time(series, &column(&series.flow_bytes, n, to_gbps), POINTS_OF_MANY_MAX);
        if many {
            let (colour, _) = style(result.transport);
            return ChartLine { faint: true, ..line("", (colour, Dashes::Solid), points) };
        }
        line(format!("{} -> {} (flow {})", f.src, f.dst, f.id), nth(n), points)
    };
    let stride = flows.div_ceil(CROWD_MAX).max(1);
    let mut lines: Vec<ChartLine> = (0..flows).step_by(stride).map(one).collect();
    if many {
        let mean = |bps: &f64| bps / 1e9 / flows as f64;
        let mean: Vec<f64> = series.goodput_bps().iter().map(mean).collect();
        let points = over_time(series, &mean, POINTS_MAX);
        lines.push(line("average flow", (Colour::Ink, Dashes::Solid), points));
    }
    let fair = at_best(result.ideal_goodput_bps / 1e9 / flows as f64, "fair at best");
    timeline(result, "goodput of each flow", "goodput (Gb/s)", lines, fair)
}

/// Returns a chart of the goodput of all flows together over time; `None` if goodput was not
/// recorded.
pub(super) fn goodput(result: &RunResult) -> Option<Chart> {
    let series = result.series.as_ref()?;
    if series.flow_bytes.is_empty() {
        return None;
    }
    let gbps: Vec<f64> = series.goodput_bps().iter().map(|bps| bps / 1e9).collect();
    let points = over_time(series, &gbps, POINTS_MAX);
    let (colour, _) = style(result.transport);
    let line = line(result.transport, (colour, Dashes::Solid), points);
    let best = at_best(result.ideal_goodput_bps / 1e9, "hosts' links");
    timeline(result, "goodput of all flows", "goodput (Gb/s)", vec![line], best)
}

/// Returns a line over time for each port.
fn by_port(series: &Series, names: &[String], rows: &[Vec<u64>], scale: f64) -> Vec<ChartLine> {
    let points_max = if names.len() > 1 { POINTS_OF_MANY_MAX } else { POINTS_MAX };
    let one = |(n, name): (usize, &String)| {
        line(name, nth(n), over_time(series, &column(rows, n, scale), points_max))
    };
    names.iter().enumerate().take(CROWD_MAX).map(one).collect()
}

/// Returns the title of a chart for values of ports. A chart of one port has no legend, so its
/// title contains the name of the port.
fn of_ports(what: &str, names: &[String]) -> String {
    match names {
        [name] => format!("{what} of {name}"),
        _ => format!("{what} of each port"),
    }
}

/// Returns a chart of the queue lengths of ports over time; `None` if they were not recorded.
pub(super) fn queues(result: &RunResult) -> Option<Chart> {
    let series = result.series.as_ref()?;
    let lines = by_port(series, &series.queues, &series.queue_bytes, 1e-3);
    let title = of_ports("queue", &series.queues);
    timeline(result, &title, "waiting at the port (kB)", lines, None)
}

/// Returns a chart of the load of ports over time, which shows how much each path is used. `None`
/// if it was not recorded.
pub(super) fn paths(result: &RunResult) -> Option<Chart> {
    let series = result.series.as_ref()?;
    let scale = 8e3 / series.interval_ps as f64;
    let lines = by_port(series, &series.loads, &series.load_bytes, scale);
    let title = of_ports("load", &series.loads);
    timeline(result, &title, "load on the wire (Gb/s)", lines, None)
}
