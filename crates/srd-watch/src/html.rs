//! A page with pictures: the peak of every bin, the means over a second and a minute, and the
//! limit, all on one axis, so that a person sees at once what an average hides.

use srd_chart::{Axis, Colour, Dashes, Line, LineChart, Page};

use crate::arrival::Way;
use crate::burst::Burst;
use crate::session::Session;
use crate::text;
use crate::timeline::Timeline;
use crate::watch::{PERIODS_NS, Watch};

/// Bursts that have a picture of their own.
pub const PICTURES_MAX: usize = 6;
/// Bursts in the table.
pub const ROWS_MAX: usize = 200;
const HEIGHT: f64 = 260.0;
/// Above the highest line.
const MARGIN: f64 = 1.08;

/// What a page shows of all bursts of a watch: the worst, and the first.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    worst: Vec<Burst>,
    rows: Vec<Burst>,
    count: usize,
}

impl Gathered {
    /// Adds a burst, and lets go of what is beyond [`PICTURES_MAX`] and [`ROWS_MAX`].
    pub fn add(&mut self, burst: &Burst) {
        self.count += 1;
        if self.rows.len() < ROWS_MAX {
            self.rows.push(Burst { shape: Vec::new(), ..burst.clone() });
        }
        let at = self.worst.partition_point(|other| other.weight() >= burst.weight());
        self.worst.insert(at, burst.clone());
        self.worst.truncate(PICTURES_MAX);
    }
}

/// The page.
pub fn page<'a>(sessions: impl Iterator<Item = &'a Session>, bursts: &Gathered) -> String {
    let mut page = Page::new("Bursts");
    for session in sessions {
        whole(&mut page, session);
    }
    page.section("The worst bursts");
    if bursts.worst.is_empty() {
        page.paragraph("There were none.");
    }
    for burst in &bursts.worst {
        one(&mut page, burst);
    }
    if bursts.rows.len() > 1 {
        page.section("All bursts");
        table(&mut page, bursts);
    }
    page.finish()
}

/// All the time of an interface.
fn whole(page: &mut Page, session: &Session) {
    let watch = &session.watch;
    page.section(watch.name());
    page.lead(&format!(
        "{} watched in bins of {}, against {}.",
        text::time(watch.seen_ns()),
        text::time(watch.settings().bin_ns),
        watch.model(),
    ));
    for way in Way::BOTH {
        let timeline = watch.timeline(way);
        let totals = watch.totals(way);
        if totals.bytes == 0 {
            continue;
        }
        let bin_ns = watch.settings().bin_ns;
        let limit_bps = watch.model().peak_bps(way);
        let mean = crate::average::rate_bps(totals.bytes, watch.seen_ns());
        let caption = format!(
            "{}: largest bin {}, mean {}",
            if way == Way::In { "Received" } else { "Sent" },
            text::rate(totals.peak_bps),
            text::rate(mean),
        );
        let svg = overview(timeline, bin_ns, limit_bps, watch.seen_ns(), &caption);
        page.chart(&caption, &svg);
    }
    page.table(&["", "in", "out"], &facts_of_all(watch));
    session.others().lines().iter().for_each(|line| page.remark(line));
}

/// Figures of all the time, in both directions.
fn facts_of_all(watch: &Watch) -> Vec<(bool, Vec<String>)> {
    let row = |name: &str, of: &dyn Fn(Way) -> String| {
        (false, std::iter::once(name.to_owned()).chain(Way::BOTH.map(of)).collect())
    };
    let largest = |way: Way, period: usize| match watch.quantile_bps(way, period, 1.0) {
        (_, 0) => "no whole one seen".to_owned(),
        (bps, _) => text::rate(bps),
    };
    let above = |way: Way| text::time(watch.totals(way).bins_above * watch.settings().bin_ns);
    let mean = |way: Way| crate::average::rate_bps(watch.totals(way).bytes, watch.seen_ns());
    vec![
        row("bytes", &|way| text::bytes(watch.totals(way).bytes)),
        row("packets", &|way| text::grouped(watch.totals(way).packets)),
        row("mean", &|way| text::rate(mean(way))),
        row("largest millisecond", &|way| largest(way, 0)),
        row("largest second", &|way| largest(way, 1)),
        row("largest minute", &|way| largest(way, 2)),
        row("limit of bandwidth", &|way| text::rate(watch.model().peak_bps(way))),
        row("time above it", &above),
    ]
}

/// Peaks, means and limit over all the time.
fn overview(line: &Timeline, bin_ns: u64, limit_bps: u64, seen_ns: u64, title: &str) -> String {
    let column_ns = line.width() * bin_ns;
    let seconds = |n: usize| n as f64 * column_ns as f64 / 1e9;
    let columns = line.columns();
    let peak = |bytes: u64| bytes as f64 * 8.0 / bin_ns as f64 * 1e3; // Mb/s
    let mut peaks: Vec<(f64, f64)> = Vec::new();
    for (n, column) in columns.iter().enumerate() {
        peaks.push((seconds(n), peak(column.bin_bytes_max)));
    }
    let end = (seen_ns as f64 / 1e9).max(seconds(columns.len()));
    peaks.push((end.min(seconds(columns.len())), 0.0));
    peaks.push((end, 0.0));
    let means = |span_ns: u64| trailing(line, bin_ns, span_ns, seen_ns);
    let lines = vec![
        named("largest bin", Colour::Orange, Dashes::Solid, peaks),
        minutes("mean over 60 s, or since the start", means(PERIODS_NS[2])),
        seconds_over("mean over 1 s", means(PERIODS_NS[1])),
    ];
    let axis = Axis::linear("s since the beginning", 0.0, end);
    chart(title, axis, lines, ("limit of bandwidth", limit_bps)).to_svg()
}

/// The mean of the time before each column; where less has been seen, of that.
fn trailing(line: &Timeline, bin_ns: u64, span_ns: u64, seen_ns: u64) -> Vec<(f64, f64)> {
    let column_ns = line.width() * bin_ns;
    let span = usize::try_from((span_ns / column_ns).max(1)).unwrap_or(usize::MAX);
    let count = usize::try_from(seen_ns.div_ceil(column_ns)).unwrap_or(0).max(line.columns().len());
    let bytes = |n: usize| line.columns().get(n).map_or(0, |column| column.bytes);
    let (mut sum, mut points) = (0_u64, Vec::new());
    for n in 0..count {
        sum += bytes(n);
        if n >= span {
            sum -= bytes(n - span);
        }
        let time_ns = column_ns as f64 * span.min(n + 1) as f64;
        points.push(((n + 1) as f64 * column_ns as f64 / 1e9, sum as f64 * 8e3 / time_ns));
    }
    points
}

/// One burst: its bins, its means, its limit, its flows.
fn one(page: &mut Page, burst: &Burst) {
    let title = format!(
        "{} {} at {} UTC: {}, {}",
        burst.interface,
        burst.way.name(),
        text::clock(burst.start_ns),
        text::time(burst.length_ns),
        text::bytes(burst.bytes),
    );
    page.subsection(&title);
    let point = |(at, bps): &(i64, u64)| (*at as f64 / 1e6, *bps as f64 / 1e6);
    let bins: Vec<(f64, f64)> = burst.shape.iter().map(point).collect();
    let first = -burst_margin(burst);
    let end = burst.length_ns as f64 / 1e6 + burst_margin(burst);
    let bins: Vec<(f64, f64)> = {
        // What held before the picture begins holds at its beginning.
        let before = bins.iter().rev().find(|(at, _)| *at < first).map_or(0.0, |(_, rate)| *rate);
        let mut kept = vec![(first, before)];
        kept.extend(bins.into_iter().filter(|(at, _)| *at >= first));
        kept.push((burst.length_ns as f64 / 1e6, 0.0));
        kept.push((end, 0.0));
        kept
    };
    let flat = |bps: u64| vec![(first, bps as f64 / 1e6), (end, bps as f64 / 1e6)];
    let minute = if burst.minute_seen_ns >= PERIODS_NS[2] {
        "mean over the minute".to_owned()
    } else {
        format!("mean over the {} seen", text::time(burst.minute_seen_ns))
    };
    let lines = vec![
        named("bins", Colour::Orange, Dashes::Solid, bins),
        minutes(&minute, flat(burst.minute_bps)),
        seconds_over("mean over the second", flat(burst.second_bps)),
    ];
    let axis = Axis::linear("ms from its beginning", first, end);
    let (limit, limit_bps) = burst.limit();
    let caption = format!("Its rate, bin by bin, beside the limit of {limit}");
    let limit = format!("limit of {limit}");
    page.chart(&caption, &chart(&caption, axis, lines, (&limit, limit_bps)).to_svg());
    let facts = text::facts(burst).into_iter().map(|(name, fact)| (false, vec![name, fact]));
    page.table(&["", ""], &facts.collect::<Vec<_>>());
    let rows: Vec<(bool, Vec<String>)> = burst
        .flows
        .iter()
        .take_while(|share| share.share >= text::SHARE_LEAST)
        .map(|share| {
            let percent = format!("{:.1} %", share.share * 100.0);
            let (queued, dropped) = (share.queued.to_string(), share.dropped.to_string());
            let carried = [text::bytes(share.bytes), share.packets.to_string()];
            let [bytes, packets] = carried;
            (false, vec![share.flow.to_string(), percent, bytes, packets, queued, dropped])
        })
        .collect();
    page.table(&["flow", "share", "bytes", "packets", "would wait", "be dropped"], &rows);
}

/// What is shown before and after a burst, in milliseconds.
fn burst_margin(burst: &Burst) -> f64 {
    (burst.length_ns as f64 / 1e6 * 0.08).max(2.0)
}

fn table(page: &mut Page, bursts: &Gathered) {
    let rows: Vec<(bool, Vec<String>)> = bursts
        .rows
        .iter()
        .map(|burst| {
            let limits = burst.limits.iter().map(|limit| limit.name).collect::<Vec<_>>().join(", ");
            let first = burst.flows.first();
            let cells = vec![
                text::clock(burst.start_ns),
                burst.way.name().to_owned(),
                text::time(burst.length_ns),
                text::bytes(burst.bytes),
                text::rate(burst.peak_bps),
                text::rate(burst.minute_bps),
                limits,
                first.map(|share| share.flow.to_string()).unwrap_or_default(),
            ];
            (false, cells)
        })
        .collect();
    let columns = [
        "at (UTC)",
        "way",
        "length",
        "bytes",
        "peak",
        "mean of the minute",
        "limits",
        "largest flow",
    ];
    page.table(&columns, &rows);
    if bursts.count > bursts.rows.len() {
        page.remark(&format!("The first {} of {}.", bursts.rows.len(), bursts.count));
    }
}

fn named(label: &str, colour: Colour, dashes: Dashes, points: Vec<(f64, f64)>) -> Line {
    Line { label: label.to_owned(), colour, dashes, faint: false, points }
}

/// Means over a minute. Those over a second are drawn later, with gaps: where both are the same,
/// both are seen.
fn minutes(label: &str, points: Vec<(f64, f64)>) -> Line {
    named(label, Colour::Green, Dashes::Solid, points)
}

fn seconds_over(label: &str, points: Vec<(f64, f64)>) -> Line {
    named(label, Colour::Blue, Dashes::Long, points)
}

fn chart(title: &str, x: Axis, mut lines: Vec<Line>, (name, limit_bps): (&str, u64)) -> LineChart {
    let limit = limit_bps as f64 / 1e6;
    let across = vec![(x.min, limit), (x.max, limit)];
    let label = format!("{name} {}", text::rate(limit_bps));
    lines.push(named(&label, Colour::Red, Dashes::Short, across));
    let values = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let highest = values.fold(limit, f64::max) * MARGIN;
    LineChart {
        title: title.to_owned(),
        height: HEIGHT,
        x,
        y: Axis::linear("Mb/s", 0.0, highest),
        lines,
        marks: Vec::new(),
        level: None,
        steps: true,
    }
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
