//! Watches interfaces live: reads their packets, the clock, and the counters of their drivers.

use std::io;
use std::time::{Duration, Instant as Clock};

use srd_net::tap::{DriverStatistics, Tap, now_ns};
use srd_proto::time::Instant;

use crate::analysis::allowances::Allowances;
use crate::analysis::model::Model;
use crate::analysis::watch::{Settings, Watch};
use crate::session::{Report, Session};
use crate::sources::source::{Choice, Far, Opened, Source};

/// Longest wait for packets, in nanoseconds. The eBPF programs do not wake this process, so their
/// records are polled at this interval.
const WAIT_NS: u64 = 20_000_000;
/// Largest time in nanoseconds from the arrival of a packet at a packet socket to its analysis. The
/// kernel delivers a block of packets after 10 ms at the latest.
const OLDEST_NS: u64 = 30_000_000;
/// Largest difference in nanoseconds between the time in a record of the eBPF programs and the time
/// at which it is read. The record is available at once, but the clocks of CPUs differ.
const APART_NS: u64 = 1_000_000;
/// Interval at which the number of lost packets is queried, and figures are passed to the output.
const LOST_EVERY: Duration = Duration::from_millis(100);

/// Options for watching live.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the interfaces.
    pub interfaces: Vec<String>,
    /// Choice of the source of packets: eBPF or packet sockets.
    pub source: Choice,
    /// Model (limits) with which the arrivals are compared.
    pub model: Model,
    /// Settings of the search for bursts.
    pub settings: Settings,
    /// Duration of the watch; `None` means that only `stop` ends it.
    pub time: Option<Duration>,
    /// Bytes of memory of each interface for packets that the kernel has delivered and this program
    /// has not read; `None` means the default of the source.
    pub ring_bytes: Option<u32>,
    /// Bytes of memory of each interface for packets that are kept to be saved; zero keeps no
    /// packets.
    pub kept_bytes: usize,
    /// Interval at which the driver's allowance counters are read.
    pub counters_every: Duration,
}

/// Receiver of the results of a watch.
pub trait Output {
    /// Called when the watch of an interface begins, with its source.
    fn opened(&mut self, _opened: &Opened) {}
    /// Called for each report about a burst: when a long burst is under way, and when a burst has
    /// ended.
    fn report(&mut self, report: Report);
    /// Called regularly and at the end, with the figures of an interface and the number of lost
    /// packets.
    fn figures(&mut self, _session: &Session, _lost: u64) {}
}

/// A closure that receives only the reports of bursts.
impl<F: FnMut(Report)> Output for F {
    fn report(&mut self, report: Report) {
        self(report);
    }
}

/// An interface under watch, with its source of packets and its analysis.
struct Watched {
    source: Source,
    session: Session,
    statistics: Option<DriverStatistics>,
    lost: u64,
    error: Option<io::Error>,
}

/// Result of the watch of an interface.
#[derive(Debug)]
pub struct Outcome {
    /// Session of the interface.
    pub session: Session,
    /// Packets that were lost because the memory for unread packets was full.
    pub lost: u64,
    /// Error that ended the watch of this interface early; `None` if there was no error.
    pub error: Option<io::Error>,
}

/// Watches the interfaces until `options.time` is over, or `stop` returns true.
///
/// # Errors
/// An error of the operating system, if an interface does not exist or a privilege is missing
/// (`CAP_NET_RAW` for packet sockets). If an interface is removed later, only its own session ends.
pub fn run(
    options: &Options,
    stop: &dyn Fn() -> bool,
    output: &mut dyn Output,
) -> io::Result<Vec<Outcome>> {
    let (mut all, mut opened) = (Vec::new(), Vec::new());
    for interface in &options.interfaces {
        let saved = options.kept_bytes > 0;
        let (source, found, began) =
            Source::open(interface, options.source, options.ring_bytes, saved)?;
        opened.push(found);
        all.push(Watched::new(interface, source, began, options));
    }
    // All interfaces are under watch before the first of them is reported to the output.
    opened.iter().for_each(|opened| output.opened(opened));
    let began = Clock::now();
    let (mut asked, mut sampled) = (began, None::<Clock>);
    let mut more = false;
    while !stop() && options.time.is_none_or(|time| began.elapsed() < time) {
        let taps = all.iter().filter_map(|watched| watched.source.tap());
        Tap::wait(taps, if more { 0 } else { WAIT_NS })?;
        let now = now_ns();
        let ask = asked.elapsed() >= LOST_EVERY;
        let sample = sampled.is_none_or(|at| at.elapsed() >= options.counters_every);
        more = false;
        for watched in &mut all {
            more |= watched.look(now);
            if ask {
                watched.ask_lost();
                output.figures(&watched.session, watched.lost);
            }
            if sample {
                watched.sample();
            }
            watched.report(false, output);
        }
        if ask {
            asked = Clock::now();
        }
        if sample {
            sampled = Some(Clock::now());
        }
        if all.iter().all(|watched| watched.error.is_some()) {
            break;
        }
    }
    for watched in &mut all {
        watched.end(output);
    }
    let outcome = |watched: Watched| Outcome {
        session: watched.session,
        lost: watched.lost,
        error: watched.error,
    };
    Ok(all.into_iter().map(outcome).collect())
}

impl Watched {
    fn new(interface: &str, source: Source, began: Instant, options: &Options) -> Self {
        let statistics = DriverStatistics::open(interface).ok();
        let allowances = statistics.as_ref().and_then(|known| Allowances::among(known.names()));
        let watch = Watch::new(interface, options.settings, &options.model, began);
        let session = Session::new(watch, allowances, options.kept_bytes);
        Self { source, session, statistics, lost: 0, error: None }
    }

    /// Reads the packets that the source has delivered and passes them to the session. `now` is a
    /// time shortly before this call. Returns whether the source has more packets.
    fn look(&mut self, now: u64) -> bool {
        let session = &mut self.session;
        let far = self.source.look(|raw| session.see(raw));
        let old = match far {
            Far::All => APART_NS,
            Far::Handed => OLDEST_NS,
            Far::Some => return true,
        };
        self.session.advance(Instant::from_nanos(now.saturating_sub(old)));
        false
    }

    fn ask_lost(&mut self) {
        match self.source.lost() {
            Ok(lost) => {
                self.session.watch.miss(lost - self.lost);
                self.lost = lost;
            }
            Err(error) => self.error = self.error.take().or(Some(error)),
        }
    }

    fn sample(&mut self) {
        let (Some(statistics), Some(allowances)) = (&self.statistics, &mut self.session.allowances)
        else {
            return;
        };
        // A driver may return an error during a reset. The next sample then covers this time.
        if let Ok(values) = statistics.values() {
            allowances.sample(now_ns(), &values);
        }
    }

    fn end(&mut self, output: &mut dyn Output) {
        let now = now_ns();
        self.look(now);
        self.ask_lost();
        self.sample();
        self.session.finish(Instant::from_nanos(now));
        self.report(true, output);
        if let Some(allowances) = &mut self.session.allowances {
            allowances.finish();
        }
        output.figures(&self.session, self.lost);
    }

    fn report(&mut self, last: bool, output: &mut dyn Output) {
        while let Some(found) = self.session.next_report(last) {
            output.report(found);
        }
    }
}
