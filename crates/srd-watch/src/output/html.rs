//! An HTML page with charts of the bursts. A sentence describes the worst burst. One chart then
//! shows the peak of every bin, the means over a second and a minute, and the limit on one axis, so
//! that the reader sees the peaks that an average hides.

use srd_chart::{Axis, ChartLine, Colour, Dashes, LineChart, Mark, Page, Unit, figure};

use crate::analysis::burst::Burst;
use crate::analysis::timeline::Timeline;
use crate::analysis::watch::{PERIODS_NS, Watch};
use crate::output::text;
use crate::session::Session;
use crate::sources::arrival::PacketDirection;

/// Largest number of bursts for which the page has a separate chart.
pub const PICTURES_MAX: usize = 6;
/// Largest number of bursts in the table of bursts.
pub const ROWS_MAX: usize = 200;
/// Display name of the ceiling of one flow.
const ONE_FLOW: &str = "bandwidth of one flow";
const HEIGHT: f64 = 260.0;
/// Factor between the highest line of a chart and the top of its axis.
const MARGIN: f64 = 1.08;

/// Bursts for a page: the worst bursts, which get a chart, and the first bursts, which get a row of
/// the table.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    worst: Vec<Burst>,
    rows: Vec<Burst>,
    /// Number of bursts; the parts of a long burst count as one.
    count: usize,
    /// Number of parts of all bursts: one for each burst of at most a minute.
    parts: usize,
}

impl Gathered {
    /// Adds a burst. At most [`PICTURES_MAX`] worst bursts and [`ROWS_MAX`] first bursts are kept.
    pub fn add(&mut self, burst: &Burst) {
        self.count += usize::from(!burst.continues);
        self.parts += 1;
        if self.rows.len() < ROWS_MAX {
            self.rows.push(Burst { shape: Vec::new(), ..burst.clone() });
        }
        let at = self.worst.partition_point(|other| other.weight() >= burst.weight());
        self.worst.insert(at, burst.clone());
        self.worst.truncate(PICTURES_MAX);
    }
}

/// Returns the page as HTML text.
pub fn page<'a>(sessions: impl Iterator<Item = &'a Session>, bursts: &Gathered) -> String {
    let mut page = Page::new("Bursts beside the limits");
    page.verdict(Some(bursts.worst.is_empty()), &verdict(bursts));
    for session in sessions {
        whole(&mut page, session, bursts);
    }
    if !bursts.worst.is_empty() {
        page.section("The worst bursts");
    }
    for (n, burst) in bursts.worst.iter().enumerate() {
        one(&mut page, n, burst);
    }
    if bursts.rows.len() > 1 {
        page.section("All bursts");
        table(&mut page, bursts);
    }
    page.finish()
}

/// Returns the summary as a sentence: the number of bursts, and the worst burst with the limit that
/// it exceeded.
fn verdict(bursts: &Gathered) -> String {
    let Some(worst) = bursts.worst.first() else {
        return "There were no bursts: nothing came near a limit.".to_owned();
    };
    let (limit, limit_bps) = worst.limit();
    // The first parts of a burst under way are known before the burst counts.
    let many = match (bursts.count.max(1), bursts.parts) {
        (1, 1) => "One burst".to_owned(),
        (1, parts) => format!("One burst in {parts} parts; the worst part"),
        (n, parts) if n == parts => format!("{n} bursts; the worst"),
        (n, parts) => format!("{n} bursts in {parts} parts; the worst part"),
    };
    format!(
        "{many}, {} {}, lasted {} and peaked at {}, {} times the limit of {limit} ({}); the mean \
         over the second was {}. Of its packets {} would wait, and {} be dropped.",
        worst.interface,
        worst.way.name(),
        text::time(worst.length_ns),
        text::rate(worst.peak_bps),
        figure(worst.peak_bps as f64 / limit_bps.max(1) as f64),
        text::rate(limit_bps),
        text::rate(worst.second_bps),
        text::percent(worst.queued_share()),
        text::percent(worst.dropped_share()),
    )
}

/// Adds the section of the page about the whole watched time of an interface.
fn whole(page: &mut Page, session: &Session, bursts: &Gathered) {
    let watch = &session.watch;
    page.section(watch.name());
    page.lead(&format!(
        "{} watched in bins of {}, against {}.",
        text::time(watch.seen_ns()),
        text::time(watch.settings().bin_ns),
        watch.model(),
    ));
    for way in PacketDirection::BOTH {
        let timeline = watch.timeline(way);
        let totals = watch.totals(way);
        if totals.bytes == 0 {
            continue;
        }
        let bin_ns = watch.settings().bin_ns;
        let mean = crate::analysis::average::rate_bps(totals.bytes, watch.seen_ns());
        let caption = format!(
            "{}: largest bin {}, mean {}",
            if way == PacketDirection::In { "Received" } else { "Sent" },
            text::rate(totals.peak_bps),
            text::rate(mean),
        );
        let chart = overview(timeline, bin_ns, watch.seen_ns(), &caption);
        let levels = limits_of_all(watch, way, bursts);
        let marks = marks(watch, way, bursts).into_iter().filter(|mark| mark.at <= chart.x.max);
        let chart = LineChart { marks: marks.collect(), ..chart };
        page.chart(&caption, &beside(chart, &levels).to_svg());
    }
    page.table(&["", "in", "out"], &facts_of_all(watch));
    session.others().lines().iter().for_each(|line| page.remark(line));
}

/// Returns rows with the figures of the whole watched time, for both directions.
fn facts_of_all(watch: &Watch) -> Vec<(bool, Vec<String>)> {
    let row = |name: &str, of: &dyn Fn(PacketDirection) -> String| {
        (false, std::iter::once(name.to_owned()).chain(PacketDirection::BOTH.map(of)).collect())
    };
    let largest = |way: PacketDirection, period: usize| match watch.quantile_bps(way, period, 1.0) {
        (_, 0) => "no whole one seen".to_owned(),
        (bps, _) => text::rate(bps),
    };
    let above =
        |way: PacketDirection| text::time(watch.totals(way).bins_above * watch.settings().bin_ns);
    let mean = |way: PacketDirection| {
        crate::analysis::average::rate_bps(watch.totals(way).bytes, watch.seen_ns())
    };
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

/// Returns the bandwidth limit of a direction and, if bursts exceeded it, the ceiling of one flow;
/// each as label and bits per second.
fn limits_of_all(watch: &Watch, way: PacketDirection, bursts: &Gathered) -> Vec<(String, u64)> {
    let mut limits = vec![("limit of bandwidth".to_owned(), watch.model().peak_bps(way))];
    let of_flow = watch.model().flow_bps().filter(|flow_bps| {
        bursts
            .rows
            .iter()
            .chain(&bursts.worst)
            .any(|burst| is_of(burst, watch, way) && burst.limit() == (ONE_FLOW, *flow_bps))
    });
    limits.extend(of_flow.map(|bps| (format!("limit of {ONE_FLOW}"), bps)));
    limits
}

fn is_of(burst: &Burst, watch: &Watch, way: PacketDirection) -> bool {
    burst.interface == watch.name() && burst.way == way
}

/// Returns a mark in the chart of the whole time for each burst that has a separate chart: its
/// start, labelled with its number.
fn marks(watch: &Watch, way: PacketDirection, bursts: &Gathered) -> Vec<Mark> {
    let began_ns = watch.timeline(way).first() * watch.settings().bin_ns;
    let mark = |(n, burst): (usize, &Burst)| {
        let since = burst.start_ns.checked_sub(began_ns)?;
        let label = format!("burst {}", n + 1);
        is_of(burst, watch, way).then(|| Mark { at: since as f64 / 1e9, label })
    };
    let mut marks: Vec<Mark> = bursts.worst.iter().enumerate().filter_map(mark).collect();
    marks.sort_by(|a, b| a.at.total_cmp(&b.at));
    marks
}

/// Returns the chart of peaks and means over the whole watched time.
fn overview(line: &Timeline, bin_ns: u64, seen_ns: u64, title: &str) -> LineChart {
    // The columns, whose number is limited, cover the whole time, also that after the last packet.
    let mut line = line.clone();
    line.add(line.first() + (seen_ns / bin_ns).saturating_sub(1), 0);
    let line = &line;
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
    chart(title, Axis::linear("s since the beginning", 0.0, end), lines)
}

/// Returns a point for each column: the mean rate in Mb/s over the span that ends with the column.
/// If less time was watched until then, the mean is over this time.
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

/// Adds the section about one burst: a chart of its bins, means and limit, a table of its figures,
/// and a table of its flows.
fn one(page: &mut Page, n: usize, burst: &Burst) {
    let title = format!(
        "Burst {}: {} {} at {} UTC, {}, {}",
        n + 1,
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
        // The value at the left edge of the chart is the rate of the last bin before it.
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
    let limits = [(format!("limit of {limit}"), limit_bps)];
    page.chart(&caption, &beside(chart(&caption, axis, lines), &limits).to_svg());
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

/// Returns the time that the chart shows before and after a burst, in milliseconds.
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
    if bursts.parts > bursts.rows.len() {
        page.remark(&format!("The first {} of {}.", bursts.rows.len(), bursts.parts));
    }
}

fn named(label: &str, colour: Colour, dashes: Dashes, points: Vec<(f64, f64)>) -> ChartLine {
    ChartLine { label: label.to_owned(), colour, dashes, faint: false, points }
}

/// Returns the chart line of means over a minute. The line of means over a second is drawn later,
/// with gaps, so that both lines are visible if they coincide.
fn minutes(label: &str, points: Vec<(f64, f64)>) -> ChartLine {
    named(label, Colour::Green, Dashes::Solid, points)
}

fn seconds_over(label: &str, points: Vec<(f64, f64)>) -> ChartLine {
    named(label, Colour::Blue, Dashes::Long, points)
}

/// Returns a line chart of rates in Mb/s.
fn chart(title: &str, x: Axis, lines: Vec<ChartLine>) -> LineChart {
    LineChart {
        title: title.to_owned(),
        height: HEIGHT,
        x,
        y: Axis::linear("Mb/s", 0.0, 1.0),
        lines,
        marks: Vec::new(),
        levels: Vec::new(),
        steps: true,
    }
}

/// Adds limits as lines to a chart, and changes the chart's unit to one that suits the greatest
/// value.
fn beside(mut chart: LineChart, limits: &[(String, u64)]) -> LineChart {
    let limit = |(name, bps): &(String, u64)| Mark {
        at: *bps as f64 / 1e6,
        label: format!("{name} {}", text::rate(*bps)),
    };
    chart.levels = limits.iter().map(limit).collect();
    let values = chart.lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let values = values.chain(chart.levels.iter().map(|level| level.at));
    let highest = values.fold(0.0, f64::max) * MARGIN;
    let unit = Unit::fitting("Mb/s", [highest]);
    for point in chart.lines.iter_mut().flat_map(|line| &mut line.points) {
        point.1 = unit.scale(point.1);
    }
    chart.levels.iter_mut().for_each(|level| level.at = unit.scale(level.at));
    chart.y = Axis::linear(unit.name(), 0.0, unit.scale(highest));
    chart
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
