//! Tables of medians and ratios, from a directory of results.
//!
//! The files are named KIND-WHO-ROUND.json. A ratio is computed between two transports of the same
//! round, which were measured in the same minute. The table contains the median of these ratios. It
//! may differ from the ratio of the two medians in the tables above it.

use crate::session::Report;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The measured transports in the order of the table: name in file names, and title.
const WHO: [(&str, &str); 6] = [
    ("udp", "raw UDP"),
    ("tcp", "TCP cubic"),
    ("srd_plain", "SRD plain"),
    ("srd_aes", "SRD AES-256-GCM"),
    ("s2n_quic", "s2n-quic"),
    ("quinn", "quinn"),
];

/// Kinds of measurements: name in file names, and title.
const KINDS: [(&str, &str); 3] = [
    ("bulk", "one flow, client to server"),
    ("block", "64 bytes there and back, blocking"),
    ("spin", "64 bytes there and back, spinning"),
];

/// Printed ratios: kind of measurement, transport in the numerator, transport in the denominator.
const RATIOS: [(&str, &str, &str); 9] = [
    ("bulk", "srd_plain", "udp"),
    ("bulk", "srd_plain", "tcp"),
    ("bulk", "srd_aes", "s2n_quic"),
    ("bulk", "srd_aes", "quinn"),
    ("block", "srd_plain", "tcp"),
    ("block", "srd_aes", "tcp"),
    ("block", "srd_aes", "s2n_quic"),
    ("spin", "srd_plain", "udp"),
    ("spin", "srd_aes", "udp"),
];

/// Results by kind, transport and round. A failed measurement has no entry.
pub(crate) type Results = BTreeMap<(String, String, u32), Report>;

/// Returns the results in the files of a directory; files that contain no result are ignored.
pub(crate) fn read(directory: &Path) -> Result<Results> {
    let mut results = Results::new();
    for entry in std::fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?
    {
        let path = entry?.path();
        let Some(key) = path.file_name().and_then(|name| key(name.to_str()?)) else { continue };
        let text = std::fs::read_to_string(&path)?;
        if let Ok(report) = serde_json::from_str(&text) {
            results.insert(key, report);
        }
    }
    Ok(results)
}

fn key(name: &str) -> Option<(String, String, u32)> {
    let mut parts = name.strip_suffix(".json")?.split('-');
    let (kind, who, round) = (parts.next()?, parts.next()?, parts.next()?);
    Some((kind.to_string(), who.to_string(), round.parse().ok()?))
}

/// Returns the tables of all kinds of measurements and the table of ratios, as text.
pub(crate) fn render(results: &Results) -> String {
    let mut text = String::new();
    for (kind, title) in KINDS {
        if results.keys().any(|key| key.0 == kind) {
            table(&mut text, results, kind, title);
        }
    }
    ratios(&mut text, results);
    for (_, who) in WHO {
        let named = |key: &str| WHO.iter().any(|&(short, long)| short == key && long == who);
        let cipher =
            results.iter().find_map(|(key, r)| r.cipher.as_ref().filter(|_| named(&key.1)));
        if let Some(cipher) = cipher {
            let _ = writeln!(text, "{who} sealed with {cipher}");
        }
    }
    text
}

fn table(text: &mut String, results: &Results, kind: &str, title: &str) {
    let bulk = kind == "bulk";
    let rounds = results.keys().filter(|key| key.0 == kind).map(|key| key.2).max().unwrap_or(0);
    let columns = if bulk {
        ["Gb/s", "least", "most", "CPU s/GB", "client", "server"]
    } else {
        ["p50 us", "least", "most", "p99 us", "", ""]
    };
    let _ = write!(text, "{title}, median of {rounds}\n{:18}", "");
    for column in columns {
        let _ = write!(text, "{column:>10}");
    }
    text.push('\n');
    for (who, name) in WHO {
        let all: Vec<&Report> = of(results, kind, who).map(|(_, report)| report).collect();
        if !all.is_empty() {
            let _ = write!(text, "{name:18}");
            row(text, &all, bulk);
            if all.len() < rounds as usize {
                let _ = write!(text, "  ({} of {rounds} succeeded)", all.len());
            }
            text.push('\n');
        }
    }
    text.push('\n');
}

fn row(text: &mut String, all: &[&Report], bulk: bool) {
    let figure = |of: &dyn Fn(&Report) -> f64| sorted(all.iter().map(|report| of(report)));
    if bulk {
        let gbps = figure(&|r| r.gbps);
        // The CPU time is printed for both ends together, for the client, and for the server.
        let gb = |r: &Report| r.gbps * r.seconds / 8.0;
        let cpu = figure(&|r| r.cpu_s_per_gb);
        let client = figure(&|r| r.cpu_s.client / gb(r));
        let server = figure(&|r| r.cpu_s.server / gb(r));
        let _ = write!(text, "{:10.2}{:10.2}{:10.2}", median(&gbps), gbps[0], gbps[gbps.len() - 1]);
        for cpu in [cpu, client, server] {
            let _ = write!(text, "{:10.3}", median(&cpu));
        }
    } else {
        let p50 = figure(&|r| r.rtt_us.map_or(f64::NAN, |rtt| rtt.p50));
        let p99 = figure(&|r| r.rtt_us.map_or(f64::NAN, |rtt| rtt.p99));
        let _ = write!(text, "{:10.1}{:10.1}{:10.1}", median(&p50), p50[0], p50[p50.len() - 1]);
        let _ = write!(text, "{:10.1}", median(&p99));
    }
}

fn ratios(text: &mut String, results: &Results) {
    let _ = writeln!(
        text,
        "{:44}{:>10}{:>10}{:>10}",
        "ratios within a round", "median", "least", "most"
    );
    for (kind, above, below) in RATIOS {
        let figure = |r: &Report| r.rtt_us.map_or(r.gbps, |rtt| rtt.p50);
        let quotients = sorted(of(results, kind, above).filter_map(|(round, report)| {
            let other = results.get(&(kind.to_string(), below.to_string(), round))?;
            Some(figure(report) / figure(other))
        }));
        if !quotients.is_empty() {
            let what = if kind == "bulk" { "Gb/s" } else { "p50" };
            let kind = if kind == "bulk" { "" } else { kind };
            let title = format!("{} / {}, {what} {kind}", name(above), name(below));
            let (least, most) = (quotients[0], quotients[quotients.len() - 1]);
            let _ = writeln!(text, "{title:44}{:10.2}{least:10.2}{most:10.2}", median(&quotients));
        }
    }
}

fn of<'a>(
    results: &'a Results,
    kind: &'a str,
    who: &'a str,
) -> impl Iterator<Item = (u32, &'a Report)> {
    let wanted = move |key: &&(String, String, u32)| key.0 == kind && key.1 == who;
    results.iter().filter(move |(key, _)| wanted(key)).map(|(key, report)| (key.2, report))
}

fn name(who: &str) -> &str {
    WHO.iter().find(|(short, _)| *short == who).map_or(who, |(_, long)| long)
}

fn sorted(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// Returns the middle value, or the mean of the two middle values.
fn median(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::CpuSeconds;

    fn report(gbps: f64) -> Report {
        Report {
            gbps,
            rtt_us: None,
            cpu_s_per_gb: 1.0,
            cpu_s: CpuSeconds { client: 0.5, server: 0.5 },
            seconds: 1.0,
            cipher: None,
        }
    }

    #[test]
    fn names_of_results_are_kind_who_and_round() {
        let expected = Some(("bulk".to_string(), "srd_plain".to_string(), 2));
        assert_eq!(key("bulk-srd_plain-2.json"), expected);
        assert_eq!(key("bulk-srd_plain.json"), None);
        assert_eq!(key("notes.txt"), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_a_lost_round_is_said() {
        let mut results = Results::new();
        for (who, figures) in [("udp", [10.0, 20.0, 40.0]), ("srd_plain", [9.0, 10.0, 32.0])] {
            for (round, gbps) in (1..).zip(figures) {
                results.insert(("bulk".into(), who.into(), round), report(gbps));
            }
        }
        results.insert(("bulk".into(), "quinn".into(), 2), report(5.0));
        let text = render(&results);
        let line = text.lines().find(|line| line.starts_with("SRD plain / raw UDP")).unwrap();
        let figures: Vec<&str> = line.split_whitespace().rev().take(3).collect();
        assert_eq!(figures, ["0.90", "0.50", "0.80"]);
        assert!(text.contains("(1 of 3 succeeded)"));
    }

    #[test]
    fn an_even_number_of_rounds_has_a_median_too() {
        assert!((median(&[1.0, 2.0]) - 1.5).abs() < 1e-9);
        assert!((median(&[1.0, 2.0, 9.0]) - 2.0).abs() < 1e-9);
    }
}
