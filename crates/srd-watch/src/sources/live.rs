//! Watches interfaces live: reads their packets, the clock, and the counters of drivers.

use std::io;
use std::time::{Duration, Instant as Clock};

use srd_net::tap::{DriverStatistics, Tap, now_ns};
use srd_proto::time::Instant;

use crate::analysis::allowances::Allowances;
use crate::analysis::model::Model;
use crate::analysis::watch::{Settings, Watch};
use crate::session::{Report, Session};
use crate::sources::source::{Choice, Far, Opened, Source};

/// Longest wait for packets, in nanoseconds. eBPF programs cause no wakeup, so their records are
/// polled at this interval.
const WAIT_NS: u64 = 20_000_000;
/// Largest age, in nanoseconds, of packets of a packet socket when they are analysed: the kernel
/// delivers blocks after 10 ms.
const OLDEST_NS: u64 = 30_000_000;
/// Largest age, in nanoseconds, of records of eBPF programs. They are available at once, but the
/// clocks of CPUs differ.
const APART_NS: u64 = 1_000_000;
/// Interval at which lost packets are queried, and figures are passed on.
const LOST_EVERY: Duration = Duration::from_millis(100);

/// Options for watching live.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the interfaces.
    pub interfaces: Vec<String>,
    /// Source of the interfaces' packets.
    pub source: Choice,
    /// Model that arrivals are compared with.
    pub model: Model,
    /// Settings of the search for bursts.
    pub settings: Settings,
    /// Duration of the watch; `None` means until it is stopped.
    pub time: Option<Duration>,
    /// Bytes of memory of each interface for packets that wait to be read; `None` for the default
    /// of the source.
    pub ring_bytes: Option<u32>,
    /// Bytes of memory of each interface for packets that may be saved; zero keeps none.
    pub kept_bytes: usize,
    /// Interval at which the driver's counters are read.
    pub counters_every: Duration,
}

/// Receiver of results.
pub trait Output {
    /// Called when the watch of an interface begins, with its source.
    fn opened(&mut self, _opened: &Opened) {}
    /// Called for each report of a burst.
    fn report(&mut self, report: Report);
    /// Called regularly and at the end, with the figures of an interface and the number of lost
    /// packets.
    fn figures(&mut self, _session: &Session, _lost: u64) {}
}

/// Output for callers that need only bursts.
impl<F: FnMut(Report)> Output for F {
    fn report(&mut self, report: Report) {
        self(report);
    }
}

/// An interface, with its source and its analysis.
struct Watched {
    source: Source,
    session: Session,
    statistics: Option<DriverStatistics>,
    lost: u64,
    error: Option<io::Error>,
}

/// Result for an interface.
#[derive(Debug)]
pub struct Outcome {
    /// Session of the interface.
    pub session: Session,
    /// Packets that were lost because the ring was full.
    pub lost: u64,
    /// Reason why the watch of this interface ended early.
    pub error: Option<io::Error>,
}

/// Watches until the time is over, or `stop` returns true.
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
    // The interfaces are reported only after the watch of all of them has begun.
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

    /// Passes the waiting packets to the session; `now` is a time before this call. Returns whether
    /// there are more packets.
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
        // Drivers may return an error during a reset; the next sample covers that time.
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
