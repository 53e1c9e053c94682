//! Search for bursts in bins, which are short intervals of equal length.
//!
//! A bin is *over* if the bytes or packets in it reached the threshold, which is a share of a
//! limit. It is also over if a limit of its direction queued or dropped one of its packets.
//! Exception: a bin with few bytes, whose packets may only have waited behind earlier packets. A
//! *run* begins with a bin that is over. It ends with the last bin that is over before a gap, which
//! is a longer row of bins that are not over than a run may contain. A run is a burst if a limit
//! queued or dropped one of its packets, or if the threshold was reached in a *window* within the
//! run.
//!
//! The length of a window is the model's tolerance or, if longer, the time in which [`FRAMES_MIN`]
//! frames arrive at the threshold's rate, each as large as the largest frame of the window. In a
//! window of several bins, one such frame is not counted, because a part of its bytes may have
//! arrived before or after the window. So large frames of a slow flow are no burst, although each
//! of them fills a bin.
//!
//! ```text
//!  over          . # # . # # # . . . . . . . # .
//!  run             [-----------]             [-]
//!                          gap: <--------->
//! ```
//!
//! Limits: a run is at most [`RUN_NS_MAX`] long, and a longer burst is reported in parts. If a run
//! is not a burst after the length of two windows, it is discarded and a new run begins. A window
//! has at most [`WINDOW_BINS_MAX`] bins.

use std::collections::VecDeque;

use srd_card::limits::Limit;

use crate::analysis::bins::{Sum, larger};
use crate::analysis::timeline::Timeline;

/// Length of the longest part in which a burst is reported, in nanoseconds: a minute.
pub(crate) const RUN_NS_MAX: u64 = 60_000_000_000;
/// Largest number of bins of a window.
pub(crate) const WINDOW_BINS_MAX: u64 = 10_000;
/// Minimum length of a window, as a number of frames: in a window, this many of its largest frames
/// must be able to arrive at the threshold's rate.
const FRAMES_MIN: u64 = 16;

/// Lengths, in bins, that the search for bursts uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    /// Length in bins of the shortest window: the model's tolerance.
    pub(crate) window: u64,
    /// Largest number of consecutive bins within a run that are not over the threshold.
    pub(crate) gap: u64,
    /// Length in bins of a run after which its burst is announced before its end.
    pub(crate) announce: u64,
    /// Largest number of bins of a run.
    pub(crate) run_max: u64,
}

/// Load of a bin in one direction, with the loads from which the bin is over the threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    /// Bytes in the bin, and the number of bytes from which the bin is over the threshold.
    pub(crate) bytes: (u64, u64),
    /// Packets of both directions in the bin, and the number from which the bin is over the
    /// threshold.
    pub(crate) packets: (u64, u64),
    /// Whether this direction had most of the bin's packets; only then `packets` counts.
    pub(crate) most: bool,
    /// Largest bytes and largest packets of a single frame in the bin.
    pub(crate) largest: (u64, u64),
}

impl Load {
    fn is_over(&self) -> bool {
        self.bytes.0 >= self.bytes.1 || (self.most && self.packets.0 >= self.packets.1)
    }
}

/// Mean rates over the second and the minute that end with a bin, and the bandwidth limit at the
/// end of the bin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Means {
    pub(crate) second_bps: u64,
    pub(crate) minute_bps: u64,
    pub(crate) minute_seen_ns: u64,
    pub(crate) limit_bps: u64,
}

/// A bin that has ended, as input of the finder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    /// Number of the bin.
    pub(crate) bin: u64,
    pub(crate) load: Load,
    /// If the bin has fewer bytes than this, packets that waited in it do not make it a part of a
    /// burst, because they may only wait behind earlier packets.
    pub(crate) little: u64,
    pub(crate) means: Means,
}

/// A run of bins that may be a burst: it begins and ends with a bin that is over the threshold.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) first: u64,
    /// Number of the latest bin of the run that is over the threshold.
    pub(crate) last: u64,
    pub(crate) sum: Sum,
    pub(crate) peak_bytes: u64,
    pub(crate) means: Means,
    /// The bandwidth limit at the start of the run, in bits per second.
    pub(crate) limit_bps: u64,
    /// Whether bandwidth, and whether packets per second, reached the threshold within one window.
    pub(crate) near: [bool; 2],
    pub(crate) missed: u64,
    pub(crate) continues: bool,
    pub(crate) shape: Timeline,
    /// Bins shortly before the run, each as number and bytes.
    pub(crate) before: Vec<(u64, u64)>,
    is_burst: bool,
    announced: bool,
    /// Sum of the arrivals after the bin `last`. They belong to the run if it continues.
    tail: Sum,
}

impl Run {
    /// Number of bins from the first to the latest bin that is over the threshold.
    fn bins(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// Event of the finder.
#[derive(Clone, Debug)]
pub(crate) enum FinderEvent {
    /// A burst is under way; the value is its run up to now.
    Began(Box<Run>),
    /// A burst, or a part of a long burst, has ended.
    Ended(Box<Run>),
}

/// Number of bins that are kept to show the time before a burst.
const BEFORE_BINS: usize = 64;

/// Finds bursts in the bins of one direction.
#[derive(Debug)]
pub(crate) struct Finder {
    sizes: Sizes,
    run: Option<Box<Run>>,
    /// The latest bins with arrivals, as number and load, at most the length of the longest window.
    window: VecDeque<(u64, Load)>,
    before: VecDeque<(u64, u64)>,
}

impl Finder {
    pub(crate) fn new(sizes: Sizes) -> Self {
        let (window, before) = (VecDeque::new(), VecDeque::new());
        Self { sizes, run: None, window, before }
    }

    /// Returns the number of the first bin of the run that is under way, which may be a burst;
    /// `None` if no run is under way.
    pub(crate) fn since(&self) -> Option<u64> {
        self.run.as_ref().map(|run| run.first)
    }

    /// Counts packets that this program did not capture; they belong to the run under way, if any.
    pub(crate) fn miss(&mut self, packets: u64) {
        if let Some(run) = &mut self.run {
            run.missed += packets;
        }
    }

    /// Counts packets that waited before an earlier limit and were then dropped by `limit`. The
    /// drop is after the last bin with arrivals.
    pub(crate) fn drop_late(&mut self, limit: Limit, packets: u64) {
        if let Some(run) = &mut self.run {
            run.sum.drop_late(limit, packets);
        }
    }

    /// Accepts a complete bin, which is later than all earlier bins, and resets its sum.
    pub(crate) fn close(&mut self, closed: &Closed, sum: &mut Sum) -> Option<FinderEvent> {
        let ended = self.idle(closed.bin);
        self.slide(closed);
        let bytes = sum.bytes;
        // Both directions share the limit of packets per second. A packet that this limit queues or
        // drops may be due to the other direction. So it does not begin a run, but may continue
        // one.
        let much = sum.bytes >= closed.little;
        let goes_on = much && sum.is_held_by_both() && self.run.is_some();
        let over = closed.load.is_over() || sum.is_held(closed.little) || goes_on;
        let part = if over { self.cut() } else { None };
        if over {
            self.grow(closed, sum, part.as_deref());
        } else if let Some(run) = &mut self.run {
            run.shape.add(closed.bin, bytes);
            run.tail.absorb(sum);
        }
        sum.clear();
        self.remember(closed.bin, bytes);
        // A bin causes at most one event. If it ends a run, a run that it begins is announced no
        // earlier than with the next bin.
        let ended = ended.or(part.map(FinderEvent::Ended));
        ended.or_else(|| if over { self.report() } else { None })
    }

    /// Notes that all bins before `bin` have ended. Ends the run under way if its last bin over the
    /// threshold is farther away than the largest gap of a run.
    pub(crate) fn idle(&mut self, bin: u64) -> Option<FinderEvent> {
        let run = self.run.as_ref()?;
        if bin.saturating_sub(run.last) <= self.sizes.gap {
            return None;
        }
        self.end()
    }

    /// Ends the run that is under way; returns an event if the run is a burst.
    pub(crate) fn end(&mut self) -> Option<FinderEvent> {
        let run = self.run.take()?;
        run.is_burst.then_some(FinderEvent::Ended(run))
    }

    /// Ends a part of a burst that has reached the largest length. This is done when the burst goes
    /// on, because the report of the last part has to state that no further part follows.
    fn cut(&mut self) -> Option<Box<Run>> {
        let bins_max = self.sizes.run_max;
        let mut part = self.run.take_if(|run| run.is_burst && run.bins() >= bins_max)?;
        part.continues = true;
        Some(part)
    }

    /// Adds a bin to the run under way, or begins a run. `part` is the part of a burst that the new
    /// run continues.
    fn grow(&mut self, closed: &Closed, sum: &mut Sum, part: Option<&Run>) {
        let (full, window) = self.full_window(closed);
        let stale = |run: &Run| !run.is_burst && run.first + 2 * window < closed.bin;
        if self.run.as_deref().is_some_and(stale) {
            self.run = None;
        }
        let before = &self.before;
        let run = self.run.get_or_insert_with(|| {
            Box::new(Run {
                first: closed.bin,
                last: closed.bin,
                sum: Sum::default(),
                peak_bytes: 0,
                means: closed.means,
                limit_bps: closed.means.limit_bps,
                near: [false; 2],
                missed: 0,
                continues: false,
                shape: Timeline::new(closed.bin),
                before: before.iter().copied().collect(),
                is_burst: part.is_some(),
                announced: false,
                tail: part.map(|part| part.tail.clone()).unwrap_or_default(),
            })
        });
        run.last = closed.bin;
        run.peak_bytes = run.peak_bytes.max(sum.bytes);
        run.shape.add(closed.bin, sum.bytes);
        run.means = closed.means;
        run.near[0] |= full.0;
        run.near[1] |= full.1;
        run.is_burst |= full.0 || full.1 || sum.is_held(closed.little);
        run.sum.absorb(&mut run.tail);
        run.sum.absorb(sum);
    }

    /// Returns whether the bytes, and whether the packets, of the window that ends with this bin
    /// reached the threshold; and the window's length in bins.
    fn full_window(&self, closed: &Closed) -> ((bool, bool), u64) {
        let load = &closed.load;
        let (mut bytes, mut packets, mut largest) = (0_u64, 0_u64, (0, 0));
        let mut bins = self.sizes.window;
        for (bin, load) in self.window.iter().rev() {
            let grown = larger(largest, load.largest);
            // Number of bins in which `FRAMES_MIN` frames arrive at the threshold's rate.
            let needed = (FRAMES_MIN * grown.0).div_ceil(load.bytes.1);
            let wider = bins.max(needed).min(WINDOW_BINS_MAX);
            if bin + wider <= closed.bin {
                break;
            }
            (bins, largest) = (wider, grown);
            bytes += load.bytes.0;
            packets = packets.saturating_add(load.packets.0);
        }
        // A single frame may fill a window of one bin, so in this case no frame is subtracted.
        let whole = |sum: u64, one: u64| if bins > 1 { sum.saturating_sub(one) } else { sum };
        let enough = |sum: u64, share: u64| sum >= share.saturating_mul(bins);
        let full = (
            enough(whole(bytes, largest.0), load.bytes.1),
            load.most && enough(whole(packets, largest.1), load.packets.1),
        );
        (full, bins)
    }

    fn slide(&mut self, closed: &Closed) {
        self.window.push_back((closed.bin, closed.load));
        let outside = |(bin, _): &(u64, Load)| bin + WINDOW_BINS_MAX <= closed.bin;
        while self.window.front().is_some_and(outside) {
            self.window.pop_front();
        }
    }

    fn remember(&mut self, bin: u64, bytes: u64) {
        if self.before.len() >= BEFORE_BINS {
            self.before.pop_front();
        }
        self.before.push_back((bin, bytes));
    }

    /// Returns an event if a burst under way has to be announced.
    fn report(&mut self) -> Option<FinderEvent> {
        let run = self.run.as_mut()?;
        if !run.is_burst || run.announced || run.bins() < self.sizes.announce {
            return None;
        }
        run.announced = true;
        Some(FinderEvent::Began(run.clone()))
    }
}
