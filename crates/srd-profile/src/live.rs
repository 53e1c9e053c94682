//! Profiles interfaces live, through the packet sockets that `srd watch` uses.

use std::io;
use std::time::{Duration, Instant as Clock};

use srd_net::tap::{Tap, now_ns};
use srd_proto::time::Instant;
use srd_watch::read::HEADERS_BYTES;

use crate::analysis::profiler::Profiler;
use crate::needs::TrafficSummary;

/// Bytes of the link header that are kept in addition to the bytes from the IP header on.
const LINK_BYTES_MAX: u32 = 32;
/// Largest number of blocks of a ring that are read before the next interface is read.
const BLOCKS_MAX: usize = 16;
/// Longest wait for packets, in nanoseconds.
const WAIT_NS: u64 = 20_000_000;
/// Interval at which the number of lost packets is queried, and progress is reported.
const EVERY: Duration = Duration::from_secs(1);

/// Options for profiling live.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the interfaces.
    pub interfaces: Vec<String>,
    /// Required headroom below limits: 0.2 means 20 %.
    pub headroom: f64,
    /// Duration of the profile.
    pub time: Duration,
    /// Size in bytes of each interface's ring, in which packets wait to be read.
    pub ring_bytes: u32,
}

/// Progress of a profile of live traffic.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Number of packets of all interfaces so far.
    pub packets: u64,
    /// Bytes of the packets of all interfaces so far, from the IP header on.
    pub bytes: u64,
}

/// Result of the profile of an interface.
#[derive(Debug)]
pub struct Outcome {
    /// The captured traffic and its needs.
    pub seen: TrafficSummary,
    /// Error that ended the profile of this interface early; `None` if there was no error.
    pub error: Option<io::Error>,
}

/// Profiles the interfaces until `options.time` is over, or `stop` returns true.
///
/// # Errors
/// An error of the operating system, if an interface does not exist or the privilege `CAP_NET_RAW`
/// is missing. If an interface is removed later, only its own profile ends.
pub fn run(
    options: &Options,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress),
) -> io::Result<Vec<Outcome>> {
    let mut taps = Vec::new();
    for interface in &options.interfaces {
        let tap = Tap::open(interface, LINK_BYTES_MAX + HEADERS_BYTES, options.ring_bytes);
        taps.push(tap.map_err(|e| io::Error::new(e.kind(), format!("{interface}: {e}")))?);
    }
    let now = Instant::from_nanos(now_ns());
    let fresh = |name: &String| (Profiler::new(name, options.headroom, now), 0_u64, None);
    let mut sources: Vec<(Profiler, u64, Option<io::Error>)> =
        options.interfaces.iter().map(fresh).collect();
    let (began, mut told) = (Clock::now(), Clock::now());
    let mut is_last = false;
    while !is_last {
        is_last = stop() || began.elapsed() >= options.time;
        if !is_last {
            Tap::wait(&taps, WAIT_NS)?;
        }
        for (tap, (profiler, ..)) in taps.iter_mut().zip(&mut sources) {
            look(tap, profiler);
        }
        if is_last || told.elapsed() >= EVERY {
            told = Clock::now();
            for (tap, (profiler, lost, error)) in taps.iter_mut().zip(&mut sources) {
                match tap.lost() {
                    Ok(now) => {
                        profiler.miss(now.saturating_sub(*lost));
                        *lost = now;
                    }
                    Err(found) => *error = error.take().or(Some(found)),
                }
            }
            progress(Progress {
                elapsed: began.elapsed(),
                packets: sources.iter().map(|(profiler, ..)| profiler.packets()).sum(),
                bytes: sources.iter().map(|(profiler, ..)| profiler.bytes()).sum(),
            });
            is_last |= sources.iter().all(|(.., error)| error.is_some());
        }
    }
    let now = Instant::from_nanos(now_ns());
    let outcome =
        |(profiler, _, error): (Profiler, u64, _)| Outcome { seen: profiler.finish(now), error };
    Ok(sources.into_iter().map(outcome).collect())
}

/// Passes the packets that wait in the ring to the analysis.
fn look(tap: &mut Tap, profiler: &mut Profiler) {
    tap.look(BLOCKS_MAX, |seen| profiler.see(&seen.into()));
}
