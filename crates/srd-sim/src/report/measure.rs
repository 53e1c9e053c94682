//! Figures from what was recorded over time: shares of a persistent incast, and what a fault
//! did to the goodput.

use serde::Serialize;

use crate::fault::Fault;
use crate::world::{Series, US};

/// Bins that are averaged, so that one odd bin decides nothing.
const SMOOTH: usize = 5;
/// The share of the former goodput that counts as recovered.
const RECOVERED: f64 = 7.0 / 8.0;

/// How far flows strayed from their fair share, over all intervals after the first.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Shares {
    /// The least, in parts of the fair share.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// Intervals that were looked at.
    pub intervals: usize,
}

/// What a fault did to the goodput of all flows together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Recovery {
    /// What broke.
    pub links: String,
    /// When.
    pub at_us: f64,
    /// When it was repaired.
    pub until_us: Option<f64>,
    /// Goodput before, bits per second.
    pub before_bps: f64,
    /// The worst interval after it, in parts of that.
    pub worst: f64,
    /// From the fault until goodput was back at 7/8; absent if it was not before the repair.
    pub back_us: Option<f64>,
    /// Goodput over the fault's second half, in parts of what it was before.
    pub during: f64,
    /// From the repair until the link carried half of what it did before; absent if it did
    /// not, or if its load was not recorded.
    pub used_again_us: Option<f64>,
}

/// The sum over flows of each interval, in bits per second.
pub fn goodput_bps(series: &Series) -> Vec<f64> {
    let seconds = series.interval_ps as f64 / 1e12;
    let sum = |bytes: &Vec<u64>| bytes.iter().sum::<u64>() as f64 * 8.0 / seconds;
    series.flow_bytes.iter().map(sum).collect()
}

/// The shares of endless flows; `None` if there are not two of them, or two intervals.
pub fn shares(series: &Series) -> Option<Shares> {
    let flows = series.flow_bytes.first()?.len();
    let intervals = series.flow_bytes.len().checked_sub(1).filter(|n| *n > 0)?;
    if flows < 2 {
        return None;
    }
    let (mut min, mut max) = (f64::INFINITY, 0.0_f64);
    for interval in &series.flow_bytes[1..] {
        let fair = interval.iter().sum::<u64>() as f64 / flows as f64;
        if fair == 0.0 {
            return None;
        }
        for &bytes in interval {
            min = min.min(bytes as f64 / fair);
            max = max.max(bytes as f64 / fair);
        }
    }
    Some(Shares { min, max, intervals })
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// What each fault that breaks links in mid-run did.
pub fn recoveries(series: &Series, faults: &[Fault]) -> Vec<Recovery> {
    let goodput = goodput_bps(series);
    faults.iter().filter_map(|fault| recovery(series, &goodput, fault)).collect()
}

fn recovery(series: &Series, goodput: &[f64], fault: &Fault) -> Option<Recovery> {
    let (Fault::LinkDown { links, at_us, until_us }
    | Fault::LinkSlow { links, at_us, until_us, .. }) = fault
    else {
        return None;
    };
    let interval_us = series.interval_ps as f64 / US as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    let bin = |us: f64| (us / interval_us).round() as usize;
    let (at, end) = (bin(*at_us), until_us.map_or(goodput.len(), bin).min(goodput.len()));
    if at < 2 * SMOOTH || end < at + 2 * SMOOTH {
        return None;
    }
    let before_bps = mean(&goodput[at / 2..at]);
    let after = &goodput[at..end];
    let well = |w: &&[f64]| mean(w) >= before_bps * RECOVERED;
    // What was under way still arrives, so it takes a moment until anything is missing.
    let dip = after.windows(SMOOTH).position(|w| !well(&w));
    let back = match dip {
        Some(dip) => after.windows(SMOOTH).skip(dip).position(|w| well(&w)).map(|n| n + dip),
        None => Some(0),
    };
    let worst = after.iter().fold(f64::INFINITY, |a, b| a.min(*b));
    let before = before_bps.max(f64::MIN_POSITIVE);
    Some(Recovery {
        links: links.clone(),
        at_us: *at_us,
        until_us: *until_us,
        before_bps,
        worst: worst / before,
        back_us: back.map(|n| n as f64 * interval_us),
        during: mean(&after[after.len() / 2..]) / before,
        used_again_us: until_us.and_then(|_| used_again(series, links, at, end)),
    })
}

/// From the repair in bin `end` until the link carried half of what it did before bin `at`.
fn used_again(series: &Series, links: &str, at: usize, end: usize) -> Option<f64> {
    let plain = |name: &str| name.replace("->", "-");
    let column = series.loads.iter().position(|name| plain(name) == plain(links))?;
    let load = |bins: &[Vec<u64>]| bins.iter().map(|b| b[column] as f64).collect::<Vec<_>>();
    let before = mean(&load(series.load_bytes.get(at / 2..at)?));
    let after = load(series.load_bytes.get(end..)?);
    let bins = after.windows(SMOOTH).position(|w| mean(w) >= before / 2.0)?;
    Some(bins as f64 * series.interval_ps as f64 / US as f64)
}
