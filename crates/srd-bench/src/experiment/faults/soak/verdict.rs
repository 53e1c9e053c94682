//! Evaluation of a soak: figures about the daemons and the load, and a list of errors.

use super::load::Tally;
use super::sample::Sample;
use crate::experiment::measure::result::{Figure, Samples, median};
use srd_lab::id::HostId;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

/// Tolerated growth of memory in KiB of a daemon that is never restarted, in addition to the memory
/// of its flows.
const GROWTH_KB_MAX: u64 = 16 << 10;
/// Memory in KiB that one more remembered flow may take, for its two directions together.
const FLOW_KB: u64 = 2;
/// Tolerated growth of the number of descriptors or threads: control connections come and go.
const FDS_SPARE: u64 = 8;
/// Least number of samples of a daemon for a comparison of the first and last third.
const SAMPLES_MIN: usize = 6;

/// All samples of each host's daemon, the oldest first.
pub(super) type History = BTreeMap<HostId, Vec<Sample>>;

/// The first and the last third of a daemon's samples.
struct Thirds<'a> {
    first: &'a [Sample],
    last: &'a [Sample],
}

impl Thirds<'_> {
    fn of(samples: &[Sample]) -> Option<Thirds<'_>> {
        let third = samples.len() / 3;
        let enough = samples.len() >= SAMPLES_MIN;
        enough.then(|| Thirds { first: &samples[..third], last: &samples[2 * third..] })
    }

    fn middle(samples: &[Sample], value: fn(&Sample) -> u64) -> u64 {
        let mut all: Vec<f64> = samples.iter().map(|sample| value(sample) as f64).collect();
        all.sort_by(f64::total_cmp);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a median of counts
        let middle = median(&all).round() as u64;
        middle
    }

    fn growth(&self, value: fn(&Sample) -> u64) -> u64 {
        Self::middle(self.last, value).saturating_sub(Self::middle(self.first, value))
    }

    fn hours(&self) -> f64 {
        let at = |samples: &[Sample]| {
            samples.iter().map(|sample| sample.at_s).sum::<f64>() / samples.len() as f64
        };
        (at(self.last) - at(self.first)) / 3600.0
    }
}

/// Returns figures about the daemons; the daemon of `keeper` is never restarted.
pub(super) fn figures(history: &History, keeper: HostId) -> Vec<Figure> {
    let kept = history.get(&keeper).map_or(&[][..], Vec::as_slice);
    let all = || history.values().flatten();
    let mb = |kb: u64| kb as f64 / 1024.0;
    let most = |value: fn(&Sample) -> u64| all().map(value).max().unwrap_or(0);
    let least = |value: fn(&Sample) -> u64| all().map(value).min().unwrap_or(0);
    let mut figures = vec![
        Figure::new("memory of the kept daemon, median", "MB", mb(Thirds::middle(kept, rss))),
        Figure::new("memory of any daemon, most", "MB", mb(most(rss))),
        Figure::new("open files, least", "", least(|s| s.fds) as f64),
        Figure::new("open files, most", "", most(|s| s.fds) as f64),
        Figure::new("threads, most", "", most(|s| s.threads) as f64),
        Figure::new("flows, most", "", most(|s| s.flows) as f64),
    ];
    if let Some(thirds) = Thirds::of(kept) {
        let (kb, flows) = (thirds.growth(rss), thirds.growth(|s| s.flows));
        let per_hour = mb(kb) / thirds.hours().max(1e-9);
        figures.push(Figure::new("growth of the kept daemon", "MB", mb(kb)));
        figures.push(Figure::new("growth of its flows", "flows", flows as f64));
        figures.push(Figure::new("growth of the kept daemon, rate", "MB/h", per_hour));
    }
    figures
}

fn rss(sample: &Sample) -> u64 {
    sample.rss_kb
}

/// Returns the memory usage of every daemon at every moment, as samples of a distribution.
pub(super) fn samples(history: &History) -> Vec<Samples> {
    let values = history.values().flatten().map(|sample| sample.rss_kb as f64 / 1024.0);
    vec![Samples { name: "memory of daemons", unit: "MB", values: values.collect() }]
}

/// Returns the errors of the daemon of `keeper`, which is never restarted.
pub(super) fn kept(history: &History, keeper: HostId) -> Vec<String> {
    let kept = history.get(&keeper).map_or(&[][..], Vec::as_slice);
    let mut wrong = Vec::new();
    if kept.windows(2).any(|pair| pair[1].age_s < pair[0].age_s) {
        wrong.push(format!("the daemon of {keeper} began anew, though nobody restarted it"));
    }
    let Some(thirds) = Thirds::of(kept) else { return wrong };
    let (grew_kb, flows) = (thirds.growth(rss), thirds.growth(|s| s.flows));
    if grew_kb > GROWTH_KB_MAX + flows * FLOW_KB {
        wrong.push(format!(
            "the daemon of {keeper} grew by {grew_kb} KB while it came to know {flows} more flows"
        ));
    }
    for (what, value, spare) in [
        ("open files", (|s: &Sample| s.fds) as fn(&Sample) -> u64, FDS_SPARE),
        ("threads", |s: &Sample| s.threads, FDS_SPARE),
    ] {
        let grew = thirds.growth(value);
        if grew > spare {
            wrong.push(format!("the daemon of {keeper} has {grew} more {what} than at first"));
        }
    }
    wrong
}

/// Returns figures about the load.
pub(super) fn load_figures(tally: &Tally) -> Vec<Figure> {
    let count = |value: &std::sync::atomic::AtomicU64| value.load(Relaxed) as f64;
    let died = tally.long.iter().filter(|long| ended(long).is_some()).count();
    let silence = tally.long.iter().map(|long| long.silence_ms.load(Relaxed)).max().unwrap_or(0);
    let mb = tally.long.iter().map(|long| count(&long.bytes)).sum::<f64>() / 1e6;
    vec![
        Figure::new("long connections that died", "", died as f64).beside(0.0, "none"),
        Figure::new("wrong bytes", "", count(&tally.wrong_bytes)).beside(0.0, "none"),
        Figure::new("longest silence of a long connection", "ms", silence as f64),
        Figure::new("brought by long connections", "MB", mb),
        Figure::new("short connections", "", count(&tally.short_done)),
        Figure::new("short connections that failed", "", count(&tally.short_failed)),
        Figure::new("datagrams sent", "", count(&tally.udp_sent)),
        Figure::new("datagrams that arrived", "", count(&tally.udp_arrived)),
    ]
}

fn ended(long: &super::load::Long) -> Option<String> {
    long.ended.lock().expect("nobody panics with the lock").clone()
}

/// Returns the errors of the load, for example broken connections and wrong bytes.
pub(super) fn load(tally: &Tally) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, long) in tally.long.iter().enumerate() {
        if let Some(why) = ended(long) {
            wrong.push(format!("long connection {number} died: {why}"));
        }
    }
    for (what, count) in [
        ("bytes are not what was sent", &tally.wrong_bytes),
        ("datagrams came a second time", &tally.udp_twice),
    ] {
        let count = count.load(Relaxed);
        if count > 0 {
            wrong.push(format!("{count} {what}"));
        }
    }
    if tally.short_done.load(Relaxed) == 0 {
        wrong.push("no short connection brought anything".into());
    }
    if tally.udp_arrived.load(Relaxed) == 0 {
        wrong.push("no datagram arrived".into());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPER: HostId = HostId { leaf: 0, host: 0 };

    fn history(step: fn(u64) -> Sample) -> History {
        [(KEEPER, (0..30).map(step).collect())].into()
    }

    fn at(n: u64, rss_kb: u64, fds: u64, flows: u64) -> Sample {
        let s = 60.0 * n as f64;
        Sample { at_s: s, age_s: s, rss_kb, fds, threads: 5, flows, peers: 3 }
    }

    #[test]
    fn a_daemon_that_stays_as_it_is_passes() {
        let flat = history(|n| at(n, 20_000 + n % 3, 30 + n % 2, 100));
        assert_eq!(kept(&flat, KEEPER), Vec::<String>::new());
        // Remembered flows explain the growth of memory.
        let flows = history(|n| at(n, 20_000 + 2000 * n, 30, 2000 * n));
        assert_eq!(kept(&flows, KEEPER), Vec::<String>::new());
    }

    #[test]
    fn one_that_grows_leaks_files_or_begins_anew_does_not() {
        assert!(
            kept(&history(|n| at(n, 20_000 + 2000 * n, 30, 100)), KEEPER)[0].contains("grew by")
        );
        assert!(kept(&history(|n| at(n, 20_000, 30 + n, 100)), KEEPER)[0].contains("open files"));
        let anew = history(|n| Sample { age_s: (n % 10) as f64, ..at(n, 20_000, 30, 100) });
        assert!(kept(&anew, KEEPER)[0].contains("began anew"));
    }

    #[test]
    fn growth_is_told_per_hour() {
        // Memory grows by one mebibyte in each minute.
        let figures = figures(&history(|n| at(n, 20_000 + 1024 * n, 30, 0)), KEEPER);
        let rate = figures.iter().find(|f| f.unit == "MB/h").unwrap().value;
        assert!((rate - 60.0).abs() < 0.1, "{rate}");
    }

    #[test]
    fn a_load_with_a_dead_connection_or_wrong_bytes_fails() {
        let tally = Tally::new(1);
        tally.short_done.store(1, Relaxed);
        tally.udp_arrived.store(1, Relaxed);
        assert_eq!(load(&tally), Vec::<String>::new());
        *tally.long[0].ended.lock().unwrap() = Some("reset".into());
        tally.wrong_bytes.store(3, Relaxed);
        assert_eq!(
            load(&tally),
            ["long connection 0 died: reset", "3 bytes are not what was sent"]
        );
    }
}
