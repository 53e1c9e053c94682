//! Interfaces under watch, live: their sources of packets, the clock, and the counters of drivers.

use std::io;
use std::time::{Duration, Instant as Clock};

use srd_net::tap::{DriverStatistics, Tap, now_ns};
use srd_proto::time::Instant;

use crate::allowances::Allowances;
use crate::model::Model;
use crate::session::{Report, Session};
use crate::source::{Choice, Far, Opened, Source};
use crate::watch::{Settings, Watch};

/// Longest wait for packets. Programs cause no wakeup: their records are polled at this interval.
const WAIT_NS: u64 = 20_000_000;
/// Greatest age of packets of a packet socket when they are shown: the kernel hands over blocks
/// after 10 ms.
const OLDEST_NS: u64 = 30_000_000;
/// Greatest age of records of programs, which are there at once: two CPUs and two clocks differ.
const APART_NS: u64 = 1_000_000;
/// Interval at which lost packets are queried, and figures are passed on.
const LOST_EVERY: Duration = Duration::from_millis(100);

/// Options for watching live.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interfaces.
    pub interfaces: Vec<String>,
    /// Source of their packets.
    pub source: Choice,
    /// Model that arrivals are compared with.
    pub model: Model,
    /// Settings of the search for bursts.
    pub settings: Settings,
    /// Duration; `None`: until it is stopped.
    pub time: Option<Duration>,
    /// Memory of each interface for packets that wait to be read, if not what suits the source.
    pub ring_bytes: Option<u32>,
    /// Memory of each interface for packets that may be saved; zero keeps none.
    pub kept_bytes: usize,
    /// Interval at which the driver's counters are read.
    pub counters_every: Duration,
}

/// Receiver of results.
pub trait Output {
    /// An interface is watched from now on, through this source.
    fn opened(&mut self, _opened: &Opened) {}
    /// A burst.
    fn report(&mut self, report: Report);
    /// Figures of an interface, with the number of packets that were lost: now and then, and at
    /// the end.
    fn figures(&mut self, _session: &Session, _lost: u64) {}
}

/// Output for callers that need bursts only.
impl<F: FnMut(Report)> Output for F {
    fn report(&mut self, report: Report) {
        self(report);
    }
}

/// An interface with what it is watched through.
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
    /// Its session.
    pub session: Session,
    /// Packets that found no room in the ring.
    pub lost: u64,
    /// Reason why it ended before its time.
    pub error: Option<io::Error>,
}

/// Watches until the time is over, or `stop` returns true.
///
/// # Errors
/// An interface cannot be watched: it does not exist, or a privilege is missing (`CAP_NET_RAW`
/// for packet sockets). An interface that goes away later ends its session only.
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
    // No interface is reported before all of them are watched.
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

    /// Shows the session what waits to be read; `now` was before that. Whether there is more.
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
        // Drivers may refuse while they are reset; the next sample covers that time.
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
