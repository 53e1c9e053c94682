//! Interfaces under watch, live: packet sockets, the clock, and the counters of drivers.

use std::io;
use std::time::{Duration, Instant as Clock};

use srd_net::tap::{DriverStatistics, Tap, now_ns};
use srd_proto::time::Instant;

use crate::allowances::Allowances;
use crate::arrival::Way;
use crate::model::Model;
use crate::read::{HEADERS_BYTES, Raw};
use crate::session::{Report, Session};
use crate::watch::{Settings, Watch};

/// Bytes of a link header that are kept before the others.
const LINK_BYTES_MAX: u32 = 32;
/// Blocks of a ring that are read before others have their turn.
const BLOCKS_MAX: usize = 16;
/// Longest wait for packets.
const WAIT_NS: u64 = 20_000_000;
/// How old packets are at most when they are shown: the kernel hands over blocks after 10 ms.
const OLDEST_NS: u64 = 30_000_000;
/// How often lost packets are asked for.
const LOST_EVERY: Duration = Duration::from_millis(100);

/// What to watch live.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interfaces.
    pub interfaces: Vec<String>,
    /// What arrivals are held against.
    pub model: Model,
    /// What is looked for.
    pub settings: Settings,
    /// How long, if not until it is stopped.
    pub time: Option<Duration>,
    /// Memory of each interface for packets that wait to be read.
    pub ring_bytes: u32,
    /// Memory of each interface for packets that may be saved; zero keeps none.
    pub kept_bytes: usize,
    /// How often the driver's counters are read.
    pub counters_every: Duration,
}

/// An interface with what it is watched through.
struct Source {
    session: Session,
    statistics: Option<DriverStatistics>,
    lost: u64,
    error: Option<io::Error>,
}

/// What is known at the end of an interface.
#[derive(Debug)]
pub struct Outcome {
    /// Its session.
    pub session: Session,
    /// Packets that found no room in the ring.
    pub lost: u64,
    /// Why it ended before its time.
    pub error: Option<io::Error>,
}

/// Watches until the time is over, or `stop` says so.
///
/// # Errors
/// An interface cannot be looked at: there is none of that name, or the privilege `CAP_NET_RAW` is
/// missing. An interface that goes away later ends its session only.
pub fn run(
    options: &Options,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(Report),
) -> io::Result<Vec<Outcome>> {
    let mut taps = Vec::new();
    for interface in &options.interfaces {
        let tap = Tap::open(interface, LINK_BYTES_MAX + HEADERS_BYTES, options.ring_bytes);
        taps.push(tap.map_err(|e| io::Error::new(e.kind(), format!("{interface}: {e}")))?);
    }
    let mut sources: Vec<Source> =
        options.interfaces.iter().map(|interface| Source::new(interface, options)).collect();
    let began = Clock::now();
    let (mut asked, mut sampled) = (began, None::<Clock>);
    while !stop() && options.time.is_none_or(|time| began.elapsed() < time) {
        Tap::wait(&taps, WAIT_NS)?;
        let now = now_ns();
        let ask = asked.elapsed() >= LOST_EVERY;
        let sample = sampled.is_none_or(|at| at.elapsed() >= options.counters_every);
        for (tap, source) in taps.iter_mut().zip(&mut sources) {
            source.look(tap, now);
            if ask {
                source.ask_lost(tap);
            }
            if sample {
                source.sample();
            }
            source.report(false, report);
        }
        if ask {
            asked = Clock::now();
        }
        if sample {
            sampled = Some(Clock::now());
        }
        if sources.iter().all(|source| source.error.is_some()) {
            break;
        }
    }
    for (tap, source) in taps.iter_mut().zip(&mut sources) {
        source.end(tap, report);
    }
    let outcome = |source: Source| Outcome {
        session: source.session,
        lost: source.lost,
        error: source.error,
    };
    Ok(sources.into_iter().map(outcome).collect())
}

impl Source {
    fn new(interface: &str, options: &Options) -> Self {
        let statistics = DriverStatistics::open(interface).ok();
        let allowances = statistics.as_ref().and_then(|known| Allowances::among(known.names()));
        let now = Instant::from_nanos(now_ns());
        let watch = Watch::new(interface, options.settings, &options.model, now);
        let session = Session::new(watch, allowances, options.kept_bytes);
        Self { session, statistics, lost: 0, error: None }
    }

    /// Shows the session what waits in the ring; `now` was before that.
    fn look(&mut self, tap: &mut Tap, now: u64) {
        let more = tap.look(BLOCKS_MAX, |seen| {
            self.session.see(&Raw {
                time: Instant::from_nanos(seen.time_ns),
                way: if seen.outgoing { Way::Out } else { Way::In },
                ethertype: Some(seen.protocol),
                length: seen.length,
                segment_bytes: seen.segment_bytes,
                mtu_bytes: None,
                bytes: seen.bytes,
            });
        });
        if !more {
            self.session.advance(Instant::from_nanos(now.saturating_sub(OLDEST_NS)));
        }
    }

    fn ask_lost(&mut self, tap: &mut Tap) {
        match tap.lost() {
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

    fn end(&mut self, tap: &mut Tap, report: &mut dyn FnMut(Report)) {
        let now = now_ns();
        self.look(tap, now);
        self.ask_lost(tap);
        self.sample();
        self.session.finish(Instant::from_nanos(now));
        self.report(true, report);
        if let Some(allowances) = &mut self.session.allowances {
            allowances.finish();
        }
    }

    fn report(&mut self, last: bool, report: &mut dyn FnMut(Report)) {
        while let Some(found) = self.session.next_report(last) {
            report(found);
        }
    }
}
