//! The analysis of one interface, from arrivals of packets to bursts. It reads no clock: callers
//! pass the time.
//!
//! ```text
//!  arrival --> model: passed, queued, dropped --> bin of its direction --+--> finder --> events
//!                                                  (flows, held packets) +--> means, percentiles
//!                                                                        +--> timeline
//! ```
//!
//! Arrivals come approximately in the order of their times. An arrival that is older than the
//! current bin (because it came over another CPU) counts in the current bin, and also counts as
//! late. If the clock was set back ([`Steady`]), bursts under way end, and time continues from the
//! latest time; reports contain the times that the clock showed.
//!
//! Memory does not grow with time, packets or flows. Events wait in a queue until the caller takes
//! them; a bin causes at most two events.

use std::collections::VecDeque;

use srd_card::limits::Limit;
use srd_proto::time::Instant;

use crate::analysis::average::{Periods, Trailing, rate_bps};
use crate::analysis::bins::Sum;
use crate::analysis::burst::{Burst, Reached, Share, Whale, name_of};
use crate::analysis::find::{
    Closed, Finder, FinderEvent, Load, Means, RUN_NS_MAX, Run, Sizes, WINDOW_BINS_MAX,
};
use crate::analysis::model::{Meter, Model};
use crate::analysis::timeline::Timeline;
use crate::sources::arrival::{Arrival, Flow, PacketDirection};
use crate::sources::steady::Steady;

const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS;
const MINUTE_NS: u64 = 60 * SECOND_NS;
/// Lengths, in nanoseconds, of the periods for which percentiles of rates are computed.
pub const PERIODS_NS: [u64; 3] = [MS, SECOND_NS, MINUTE_NS];
/// Permitted length of a bin, in nanoseconds.
pub const BIN_NS: std::ops::RangeInclusive<u64> = 100_000..=MS;
/// Divisor of the threshold in bytes. A bin with fewer bytes than the quotient is no part of a
/// burst.
const LITTLE: u64 = 10;
/// Least number of inner flows of a tunnel that exceeds the ceiling of one flow, for the tunnel to
/// be reported as a whale.
const WHALE_FLOWS_MIN: u64 = 2;

/// Settings of the search for bursts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Length of a bin, in nanoseconds: see [`BIN_NS`].
    pub bin_ns: u64,
    /// Threshold in percent of a limit. A bin that reaches it may belong to a burst.
    pub threshold_percent: u64,
    /// Shortest time between two bursts, in nanoseconds; bursts that are nearer count as one.
    pub gap_ns: u64,
    /// Length, in nanoseconds, after which a continuing burst is announced.
    pub announce_ns: u64,
    /// Largest number of flows that the report of a burst lists.
    pub flows: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { bin_ns: MS, threshold_percent: 90, gap_ns: 5 * MS, announce_ns: 200 * MS, flows: 8 }
    }
}

/// An event of the analysis.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A burst is under way; its figures cover the time up to now.
    Began(Box<Burst>),
    /// A burst has ended, or a part of a burst has ([`Burst::continues`]).
    Ended(Box<Burst>),
}

/// Figures of a direction over the whole watched time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Bytes, from the IP header on.
    pub bytes: u64,
    /// Number of packets.
    pub packets: u64,
    /// Packets that waited in the model; a packet counts once, at its first limit.
    pub queued: u64,
    /// Packets that were dropped in the model.
    pub dropped: u64,
    /// Number of bins whose rate was above the bandwidth limit.
    pub bins_above: u64,
    /// Rate in the bin with the most bytes, in bits per second.
    pub peak_bps: u64,
}

/// State of the analysis for one direction.
struct Side {
    bin: Sum,
    finder: Finder,
    second: Trailing,
    minute: Trailing,
    periods: [Periods; 3],
    timeline: Timeline,
    totals: Totals,
}

impl Side {
    fn new(sizes: Sizes, first: u64, origin_ns: u64) -> Self {
        Self {
            bin: Sum::default(),
            finder: Finder::new(sizes),
            second: Trailing::new(SECOND_NS),
            minute: Trailing::new(MINUTE_NS),
            periods: PERIODS_NS.map(|period| Periods::new(period, origin_ns)),
            timeline: Timeline::new(first),
            totals: Totals::default(),
        }
    }
}

/// The analysis of one interface.
pub struct Watch {
    name: String,
    settings: Settings,
    model: Model,
    meter: Meter,
    clock: Steady,
    /// Number of the current bin, counted from time zero.
    bin: u64,
    first: u64,
    sides: [Side; 2],
    events: VecDeque<Event>,
    late: u64,
    missed: u64,
}

impl Watch {
    /// Returns an analysis that begins at `now`.
    ///
    /// # Panics
    /// If the length of a bin is not in [`BIN_NS`].
    pub fn new(name: &str, settings: Settings, model: &Model, now: Instant) -> Self {
        assert!(BIN_NS.contains(&settings.bin_ns), "a bin of 100 us to 1 ms");
        let bins = |ns: u64| ns.div_ceil(settings.bin_ns).max(1);
        let window = bins(model.tolerance().as_nanos()).min(WINDOW_BINS_MAX);
        let sizes = Sizes {
            window,
            gap: bins(settings.gap_ns).max(window),
            announce: bins(settings.announce_ns),
            run_max: bins(RUN_NS_MAX),
        };
        let first = now.as_nanos() / settings.bin_ns;
        let side = || Side::new(sizes, first, first * settings.bin_ns);
        Self {
            name: name.to_owned(),
            settings,
            meter: Meter::new(model, now),
            clock: Steady::new(now),
            model: model.clone(),
            bin: first,
            first,
            sides: [side(), side()],
            events: VecDeque::new(),
            late: 0,
            missed: 0,
        }
    }

    /// Adds a packet to the analysis.
    pub fn arrive(&mut self, arrival: &Arrival) {
        let time = self.steady(|clock| clock.packet(arrival.time));
        let arrival = &Arrival { time, ..*arrival };
        self.pass(time);
        if arrival.time.as_nanos() / self.settings.bin_ns < self.bin {
            self.late += 1;
        }
        if self.clock.is_far(time) {
            // The packet is too old for the current bin. It counts in the totals, but is no part of
            // a burst.
            let totals = &mut self.sides[index(arrival.way)].totals;
            totals.bytes += u64::from(arrival.bytes);
            totals.packets += u64::from(arrival.packets);
            return;
        }
        self.settle(arrival.time);
        let fate = self.meter.offer(arrival);
        self.sides[index(arrival.way)].bin.add(arrival, fate);
    }

    /// Counts packets that arrived but that the source lost.
    pub fn miss(&mut self, packets: u64) {
        self.missed += packets;
        self.sides.iter_mut().for_each(|side| side.finder.miss(packets));
    }

    /// Notes that all packets that arrived before `now` have been added.
    pub fn advance(&mut self, now: Instant) {
        let now = self.steady(|clock| clock.now(now));
        self.pass(now);
    }

    /// Returns the steady time of a clock time. If the clock was set back, bursts under way end
    /// first, so that their reports have the times that the clock showed before.
    fn steady(&mut self, ask: impl FnOnce(&mut Steady) -> Instant) -> Instant {
        let mut clock = self.clock.clone();
        let time = ask(&mut clock);
        if clock.set_back() > self.clock.set_back() {
            self.close();
            self.end_runs();
        }
        self.clock = clock;
        time
    }

    /// Notes that all packets before the steady time `now` have been added; ends bins accordingly.
    fn pass(&mut self, now: Instant) {
        let bin = now.as_nanos() / self.settings.bin_ns;
        if bin <= self.bin {
            return;
        }
        self.settle(Instant::from_nanos((self.bin + 1) * self.settings.bin_ns));
        self.close();
        self.bin = bin;
        self.settle(Instant::from_nanos(bin * self.settings.bin_ns));
        for way in PacketDirection::BOTH {
            let found = self.sides[index(way)].finder.idle(bin);
            self.found(way, found);
        }
    }

    /// Ends the watch at `now`; bursts that are under way end as well.
    pub fn finish(&mut self, now: Instant) {
        self.advance(now);
        self.end();
    }

    /// Ends the watch at the time of the latest packet; bursts that are under way end as well.
    pub fn end(&mut self) {
        self.close();
        self.end_runs();
        // Periods that ended before the last bin are complete, even if they are idle.
        let last_ns = self.bin * self.settings.bin_ns;
        for periods in self.sides.iter_mut().flat_map(|side| &mut side.periods) {
            periods.add(last_ns, 0);
        }
    }

    fn end_runs(&mut self) {
        for way in PacketDirection::BOTH {
            let found = self.sides[index(way)].finder.end();
            self.found(way, found);
        }
    }

    /// Returns the next event from the queue; `None` if the queue is empty.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the model (limits) with which arrivals are compared.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the settings of the search for bursts.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the start of the possible burst that is under way in a direction; `None` if no burst
    /// is under way.
    pub fn since(&self, way: PacketDirection) -> Option<Instant> {
        let bin = self.sides[index(way)].finder.since()?;
        Some(Instant::from_nanos(self.clock.shown_ns(bin * self.settings.bin_ns)))
    }

    /// Returns the number of times that the clock was set back.
    pub fn set_back(&self) -> u64 {
        self.clock.set_back()
    }

    /// Returns the figures of a direction over the whole watched time.
    pub fn totals(&self, way: PacketDirection) -> Totals {
        self.sides[index(way)].totals
    }

    /// Returns the number of packets in both directions.
    pub fn packets(&self) -> u64 {
        self.sides.iter().map(|side| side.totals.packets).sum()
    }

    /// Returns a quantile of the rates of all whole periods, and the number of periods. The
    /// quantile is the rate, in bits per second, that the share `share` of the periods does not
    /// exceed. `period` is an index into [`PERIODS_NS`].
    pub fn quantile_bps(&self, way: PacketDirection, period: usize, share: f64) -> (u64, u64) {
        let periods = &self.sides[index(way)].periods[period];
        (periods.quantile_bps(share), periods.len())
    }

    /// Returns the rates of a direction over the whole watched time.
    pub fn timeline(&self, way: PacketDirection) -> &Timeline {
        &self.sides[index(way)].timeline
    }

    /// Returns the watched time in nanoseconds: at least one bin.
    pub fn seen_ns(&self) -> u64 {
        (self.bin - self.first).max(1) * self.settings.bin_ns
    }

    /// Returns four numbers with names: late packets, missed packets, meters of flows that were
    /// dropped to limit memory, and times that the clock was set back.
    pub fn blemishes(&self) -> [(&'static str, u64); 4] {
        [
            ("late", self.late),
            ("missed", self.missed),
            ("flows forgotten", self.meter.forgotten()),
            ("clock set back", self.clock.set_back()),
        ]
    }

    /// Forwards the packets whose wait in the model ends by `now`, and counts those that another
    /// limit then drops.
    fn settle(&mut self, now: Instant) {
        while let Some((limit, way, packets)) = self.meter.late(now) {
            let side = &mut self.sides[index(way)];
            if side.bin.packets > 0 {
                side.bin.drop_late(limit, packets);
            } else {
                side.finder.drop_late(limit, packets);
                side.totals.dropped += packets;
            }
        }
    }

    /// Ends the current bin: adds its sums to the figures, and passes it to the finder.
    fn close(&mut self) {
        let bin_ns = self.settings.bin_ns;
        let (start_ns, end) = (self.bin * bin_ns, Instant::from_nanos((self.bin + 1) * bin_ns));
        let seen_ns = (self.bin + 1 - self.first) * bin_ns;
        let packets = self.sides.each_ref().map(|side| side.bin.packets);
        for way in PacketDirection::BOTH {
            let limit_bps = self.meter.limit_bps(end, way);
            let side = &mut self.sides[index(way)];
            let bytes = side.bin.bytes;
            side.second.add(start_ns, bytes);
            side.minute.add(start_ns, bytes);
            side.periods.iter_mut().for_each(|periods| periods.add(start_ns, bytes));
            if side.bin.packets == 0 {
                continue;
            }
            side.timeline.add(self.bin, bytes);
            let totals = &mut side.totals;
            totals.bytes += bytes;
            totals.packets += side.bin.packets;
            totals.queued += side.bin.first.queued;
            totals.dropped += side.bin.first.dropped;
            totals.bins_above += u64::from(rate_bps(bytes, bin_ns) > limit_bps);
            totals.peak_bps = totals.peak_bps.max(rate_bps(bytes, bin_ns));
            let share = |rate: u64, unit: u64| {
                let parts = u128::from(unit) * 100 * u128::from(SECOND_NS);
                let whole = u128::from(rate) * u128::from(self.settings.threshold_percent);
                let needed = (whole * u128::from(bin_ns)).div_ceil(parts);
                u64::try_from(needed).unwrap_or(u64::MAX).max(1)
            };
            let rate = self.model.packets_per_second();
            let closed = Closed {
                bin: self.bin,
                load: Load {
                    bytes: (bytes, share(limit_bps, 8)),
                    packets: (packets[0] + packets[1], rate.map_or(u64::MAX, |r| share(r, 1))),
                    most: 2 * packets[index(way)] >= packets[0] + packets[1],
                    largest: side.bin.largest,
                },
                little: share(limit_bps.min(self.model.flow_bps().unwrap_or(u64::MAX)), 8) / LITTLE,
                means: Means {
                    second_bps: side.second.mean_bps(seen_ns),
                    minute_bps: side.minute.mean_bps(seen_ns),
                    minute_seen_ns: seen_ns.min(MINUTE_NS),
                    limit_bps,
                },
            };
            let found = side.finder.close(&closed, &mut side.bin);
            self.found(way, found);
        }
    }

    fn found(&mut self, way: PacketDirection, found: Option<FinderEvent>) {
        let event = match found {
            None => return,
            Some(FinderEvent::Began(run)) => Event::Began(Box::new(self.burst(way, &run))),
            Some(FinderEvent::Ended(run)) => Event::Ended(Box::new(self.burst(way, &run))),
        };
        self.events.push_back(event);
    }

    fn burst(&self, way: PacketDirection, run: &Run) -> Burst {
        let bin_ns = self.settings.bin_ns;
        let length_ns = (run.last - run.first + 1) * bin_ns;
        let largest = run.sum.flows.largest();
        let share = |bytes: u64| bytes as f64 / run.sum.bytes.max(1) as f64;
        let flows = largest.iter().take(self.settings.flows).map(|(flow, carried)| Share {
            flow: *flow,
            bytes: carried.bytes,
            packets: carried.packets,
            share: share(carried.bytes),
            queued: carried.queued,
            dropped: carried.dropped,
        });
        let limits = reached(way, run, self.model.flow_bps());
        let flow_limit = limits.iter().any(|limit| limit.counter == Limit::Flow.counter());
        Burst {
            interface: self.name.clone(),
            way,
            start_ns: self.clock.shown_ns(run.first * bin_ns),
            length_ns,
            continues: run.continues,
            bytes: run.sum.bytes,
            packets: run.sum.packets,
            peak_bps: rate_bps(run.peak_bytes, bin_ns),
            mean_bps: rate_bps(run.sum.bytes, length_ns),
            second_bps: run.means.second_bps,
            minute_bps: run.means.minute_bps,
            minute_seen_ns: run.means.minute_seen_ns,
            limit_bps: run.limit_bps,
            queued: run.sum.first.queued,
            dropped: run.sum.first.dropped,
            limits,
            flows: flows.collect(),
            flows_counted: largest.len() as u64,
            flows_error_bytes: run.sum.flows.error_bytes(),
            whales: if flow_limit { whales(&largest) } else { Vec::new() },
            allowances: Vec::new(),
            missed: run.missed,
            shape: shape(run, bin_ns),
        }
    }
}

fn index(way: PacketDirection) -> usize {
    match way {
        PacketDirection::In => 0,
        PacketDirection::Out => 1,
    }
}

/// Returns the limits that a run came near to or exceeded.
fn reached(way: PacketDirection, run: &Run, flow_bps: Option<u64>) -> Vec<Reached> {
    let bandwidth = match way {
        PacketDirection::In => Limit::BandwidthIn,
        PacketDirection::Out => Limit::BandwidthOut,
    };
    let all = [
        (bandwidth, run.near[0], Some(run.limit_bps)),
        (Limit::Packets, run.near[1], None),
        (Limit::Flow, false, flow_bps),
        (Limit::Fragments, false, None),
        (Limit::LinkLocal, false, None),
    ];
    let found = all.into_iter().filter_map(|(limit, near, bps)| {
        let held = run.sum.held[limit as usize];
        let exceeded = held.queued + held.dropped > 0;
        (exceeded || near).then(|| Reached {
            counter: limit.counter(),
            name: name_of(limit),
            bps,
            exceeded,
            queued: held.queued,
            dropped: held.dropped,
        })
    });
    found.collect()
}

/// Returns the tunnels with several inner flows.
fn whales(flows: &[(Flow, crate::analysis::sketch::Carried)]) -> Vec<Whale> {
    let mut found: Vec<Whale> = Vec::new();
    let mut tunnels: Vec<_> = flows.iter().filter(|(flow, _)| flow.inner.is_some()).collect();
    tunnels.sort_by_key(|(flow, _)| flow.outer);
    for (flow, carried) in tunnels {
        let outer = Flow { outer: flow.outer, inner: None };
        match found.last_mut() {
            Some(whale) if whale.outer == outer => {
                whale.inner_flows += 1;
                whale.bytes += carried.bytes;
            }
            _ => found.push(Whale { outer, inner_flows: 1, bytes: carried.bytes }),
        }
    }
    found.retain(|whale| whale.inner_flows >= WHALE_FLOWS_MIN);
    found.sort_by_key(|whale| std::cmp::Reverse(whale.bytes));
    found
}

/// Returns the rates of a run's bins, and of bins shortly before the run, over time. In a long run,
/// a point is the rate of the largest of several bins.
fn shape(run: &Run, bin_ns: u64) -> Vec<(i64, u64)> {
    let offset = |bin: u64| {
        let bins = i128::from(bin) - i128::from(run.first);
        i64::try_from(bins * i128::from(bin_ns)).unwrap_or(i64::MIN)
    };
    let mut points = Vec::new();
    let mut expected = None;
    for (bin, bytes) in &run.before {
        // Bins without packets are not stored, so zeros are inserted.
        if expected.is_some_and(|expected| expected < *bin) {
            points.push((offset(expected.unwrap_or(*bin)), 0));
        }
        points.push((offset(*bin), rate_bps(*bytes, bin_ns)));
        expected = Some(bin + 1);
    }
    if let Some(expected) = expected.filter(|expected| *expected < run.first) {
        points.push((offset(expected), 0));
    }
    let width = run.shape.width();
    for (n, column) in (0_u64..).zip(run.shape.columns()) {
        let rate = rate_bps(column.bin_bytes_max, bin_ns);
        points.push((offset(run.first + n * width), rate));
    }
    points
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
