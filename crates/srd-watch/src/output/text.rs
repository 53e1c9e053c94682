//! Bursts and summaries as text for the user.

use std::fmt::Write as _;

use crate::analysis::burst::Burst;
use crate::analysis::watch::PERIODS_NS;
pub use crate::output::units::{bytes, clock, grouped, rate, time};
use crate::session::Session;
use crate::sources::arrival::PacketDirection;

/// Smallest share of a burst's bytes from which a flow is listed.
pub(crate) const SHARE_LEAST: f64 = 0.0005;

/// Returns a count with a noun: `1 burst`, `2 bursts`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns a share as percent: `12.5 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Returns a burst as a few lines of text. `began` is set if the burst is still under way.
pub fn burst(burst: &Burst, began: bool) -> String {
    let mut text = String::new();
    let state = match (began, burst.continues) {
        (true, _) => "under way since",
        (false, true) => "goes on since",
        (false, false) => "burst at",
    };
    let _ = write!(
        text,
        "{} {} {state} {}: {}, {} in {} packets",
        burst.interface,
        burst.way.name(),
        clock(burst.start_ns),
        time(burst.length_ns),
        bytes(burst.bytes),
        burst.packets,
    );
    let _ = write!(
        text,
        "\n  peak {}, mean {}; over the second {}, over the {} {}; limit {}",
        rate(burst.peak_bps),
        rate(burst.mean_bps),
        rate(burst.second_bps),
        minute(burst.minute_seen_ns),
        rate(burst.minute_bps),
        rate(burst.limit_bps),
    );
    // Limits that held packets up come before limits that were only approached.
    let (exceeded, reached): (Vec<_>, Vec<_>) =
        burst.limits.iter().partition(|limit| limit.exceeded);
    for limit in exceeded.into_iter().chain(reached) {
        if limit.exceeded {
            let _ = write!(
                text,
                "\n  exceeded {}: {} packets would wait, {} be dropped ({})",
                limit.name, limit.queued, limit.dropped, limit.counter,
            );
        } else {
            let _ = write!(text, "\n  reached {}, nothing held up", limit.name);
        }
    }
    if burst.queued + burst.dropped > 0 {
        let (queued, dropped) = (percent(burst.queued_share()), percent(burst.dropped_share()));
        let _ = write!(text, "\n  of all packets {queued} would wait, {dropped} be dropped");
    }
    let named = burst.flows.iter().take_while(|flow| flow.share >= SHARE_LEAST);
    for flow in named.clone() {
        let _ =
            write!(text, "\n  {:>7} {:>9}  {}", percent(flow.share), bytes(flow.bytes), flow.flow);
    }
    let more = burst.flows_counted.saturating_sub(named.count() as u64);
    if more > 0 || burst.flows_error_bytes > 0 {
        let least = if burst.flows_error_bytes > 0 { "at least " } else { "" };
        let _ = write!(text, "\n  and {least}{}", counted(more, "other flow"));
    }
    for whale in &burst.whales {
        let _ = write!(
            text,
            "\n  {} carries {} flows under the ceiling of one: let the tunnel's source port \
             follow the inner flow (VXLAN, Geneve), or use several tunnels",
            whale.outer, whale.inner_flows
        );
    }
    for increment in &burst.allowances {
        let _ = write!(text, "\n  driver: {} +{}", increment.counter, increment.packets);
    }
    if burst.missed > 0 {
        let _ =
            write!(text, "\n  {} packets were missed meanwhile: figures are too low", burst.missed);
    }
    text
}

/// Returns the figures of a burst as pairs of name and text, without its flows.
pub(crate) fn facts(burst: &Burst) -> Vec<(String, String)> {
    let mut facts = vec![
        ("bytes".to_owned(), bytes(burst.bytes)),
        ("packets".to_owned(), grouped(burst.packets)),
        ("peak".to_owned(), rate(burst.peak_bps)),
        ("mean".to_owned(), rate(burst.mean_bps)),
        ("mean over the second".to_owned(), rate(burst.second_bps)),
        (format!("mean over the {}", minute(burst.minute_seen_ns)), rate(burst.minute_bps)),
        ("limit of its direction".to_owned(), rate(burst.limit_bps)),
    ];
    let mut add = |name: &str, fact: String| facts.push((name.to_owned(), fact));
    for limit in &burst.limits {
        let bps = limit.bps.map(|bps| format!(" of {}", rate(bps))).unwrap_or_default();
        let (name, held) = match limit.exceeded {
            true => {
                ("exceeded", format!("{} would wait, {} be dropped", limit.queued, limit.dropped))
            }
            false => ("reached", "nothing held up".to_owned()),
        };
        add(name, format!("{}{bps}: {held} ({})", limit.name, limit.counter));
    }
    let named = burst.flows.iter().take_while(|flow| flow.share >= SHARE_LEAST).count() as u64;
    let more = burst.flows_counted.saturating_sub(named);
    if more > 0 {
        add("flows not below", grouped(more));
    }
    for whale in &burst.whales {
        add("tunnel", format!("{} carries {} flows", whale.outer, whale.inner_flows));
    }
    for increment in &burst.allowances {
        add("driver", format!("{} +{}", increment.counter, increment.packets));
    }
    if burst.missed > 0 {
        add("missed packets", format!("{}: figures are too low", burst.missed));
    }
    facts
}

fn minute(seen_ns: u64) -> String {
    if seen_ns >= PERIODS_NS[2] { "minute".to_owned() } else { format!("{} seen", time(seen_ns)) }
}

/// Summary of all bursts of a watch.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of bursts; all parts of a burst count once.
    pub bursts: u64,
    /// Sum of the lengths of all bursts, in nanoseconds.
    pub length_ns: u64,
    /// The worst burst by [`Burst::weight`]; `None` if there was no burst.
    pub worst: Option<Burst>,
}

impl Tally {
    /// Counts a burst, or a part of a burst that is reported in parts.
    pub fn add(&mut self, burst: &Burst) {
        self.bursts += u64::from(!burst.continues);
        self.length_ns += burst.length_ns;
        if self.worst.as_ref().is_none_or(|worst| worst.weight() < burst.weight()) {
            self.worst = Some(burst.clone());
        }
    }
}

/// Returns the line for a session without a burst.
pub fn quiet(session: &Session) -> String {
    let watch = &session.watch;
    let mut text = format!("{}: no bursts in {}", watch.name(), time(watch.seen_ns()));
    for way in PacketDirection::BOTH {
        let totals = watch.totals(way);
        if totals.packets > 0 {
            let _ = write!(
                text,
                "; {} {} in {}, largest bin {} of a limit of {}",
                way.name(),
                bytes(totals.bytes),
                counted(totals.packets, "packet"),
                rate(totals.peak_bps),
                rate(watch.model().peak_bps(way)),
            );
        }
    }
    text
}

/// Returns the summary of a session.
pub fn summary(session: &Session, tally: &Tally, lost: u64) -> String {
    let watch = &session.watch;
    let mut text = format!(
        "{}: {} watched in bins of {}, against {}",
        watch.name(),
        time(watch.seen_ns()),
        time(watch.settings().bin_ns),
        watch.model(),
    );
    let bursts = counted(tally.bursts, "burst");
    let _ = write!(text, "\n  {bursts}, {} together", time(tally.length_ns));
    for way in PacketDirection::BOTH {
        let totals = watch.totals(way);
        let mean = crate::analysis::average::rate_bps(totals.bytes, watch.seen_ns());
        let above = totals.bins_above * watch.settings().bin_ns;
        let _ = write!(
            text,
            "\n  {:<3} {}, {} packets; mean {}, largest bin {}; {} above the limit of {}",
            way.name(),
            bytes(totals.bytes),
            totals.packets,
            rate(mean),
            rate(totals.peak_bps),
            time(above),
            rate(watch.model().peak_bps(way)),
        );
        for (n, name) in ["1 ms", "1 s", "60 s"].into_iter().enumerate() {
            let of = |share| watch.quantile_bps(way, n, share).0;
            let periods = watch.quantile_bps(way, n, 0.5).1;
            if periods == 0 {
                let _ = write!(text, "\n      {name:>4}: no whole period was seen");
                continue;
            }
            let figures = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];
            let figures = figures.map(|(share, name)| format!("{name} {}", rate(of(share))));
            let _ = write!(text, "\n      {name:>4}: {}", figures.join(", "));
        }
    }
    if let Some(worst) = &tally.worst {
        let _ = write!(text, "\n  the worst: {}", burst(worst, false).replace('\n', "\n  "));
    }
    for (counter, total, stray) in session.allowances.iter().flat_map(|known| known.totals()) {
        let _ = write!(text, "\n  driver: {counter} +{total}");
        if stray > 0 {
            let _ = write!(text, ", of which {stray} belong to no burst that was seen");
        }
    }
    for (name, count) in watch.blemishes().into_iter().filter(|(_, count)| *count > 0) {
        let _ = write!(text, "\n  {name}: {count}");
    }
    if lost > 0 {
        let _ = write!(
            text,
            "\n  {lost} packets were not seen (no room in the ring): figures are too low"
        );
    }
    for line in session.others().lines() {
        let _ = write!(text, "\n  {line}");
    }
    text
}
