//! Small text tables about a run: shares of endless flows, drops by cards, effects of pauses,
//! completion of a schedule, and effects of faults.

use super::columns::{align, row};
use super::fairness::{DEVIATION_MAX, JAIN_MIN, Shares};
use super::recovery::Recovery;
use crate::runs::completion::Completion;
use crate::runs::run::RunResult;

/// Number of intervals of a timeline in one line of text.
const ACROSS: usize = 10;
/// Largest number of intervals that are listed. A longer series is cut off, and followed by the
/// worst values of all intervals.
const INTERVALS_MAX: usize = 40;

/// Returns the text tables of a run.
pub(super) fn notes(result: &RunResult) -> Vec<String> {
    let who = format!("{}, seed {}", result.transport, result.seed);
    let mut notes = Vec::new();
    if let Some(shares) = &result.shares {
        notes.push(fairness(&who, result, shares));
    }
    notes.extend(card_drops(&who, result));
    notes.extend(result.pauses.as_ref().map(|pauses| pauses.told(&who)));
    notes.extend(result.schedule.as_ref().map(|schedule| completion(&who, schedule)));
    let told = |r: &Recovery| recovery(&who, result, r) + &timeline(r);
    notes.extend(result.recoveries.iter().map(told));
    notes
}

/// Returns a line with the counters of the packets that cards dropped; `None` if they dropped none.
fn card_drops(who: &str, result: &RunResult) -> Option<String> {
    let of_cause = |(cause, n): (&&str, &u64)| (*n > 0).then(|| format!("{cause} {n}"));
    let causes: Vec<_> = result.card_drops.iter().flatten().filter_map(of_cause).collect();
    (!causes.is_empty()).then(|| format!("{who}: dropped by cards: {}\n", causes.join(", ")))
}

fn completion(who: &str, schedule: &Completion) -> String {
    let (ranks, operations) = (schedule.ranks, schedule.operations);
    let ideal_us = schedule.ideal_us;
    let end = match (schedule.completion_us, schedule.over_ideal) {
        (Some(us), Some(ratio)) => {
            format!("complete after {us:.1} us, {ratio:.3} of the ideal {ideal_us:.1} us")
        }
        (Some(us), None) => format!("complete after {us:.1} us: nothing in it takes time"),
        (None, _) => format!("NOT complete: {} operations undone", schedule.undone),
    };
    let median_us = schedule.median_rank_us;
    format!(
        "{who}: {operations} operations of {ranks} ranks {end}; the median rank after \
         {median_us:.1} us\n"
    )
}

fn percent(share: f64) -> String {
    format!("{:+.2} %", (share - 1.0) * 100.0)
}

fn fairness(who: &str, result: &RunResult, shares: &Shares) -> String {
    let length_us = shares.interval_us;
    let mut text = format!(
        "{who}: shares of {} endless flows in {} intervals of {length_us:.0} us, the first left \
         out\n",
        result.flows,
        shares.intervals.len()
    );
    let mut rows = vec![row(["  interval us", "fair Gb/s", "lowest flow", "highest flow", "Jain"])];
    for interval in shares.intervals.iter().take(INTERVALS_MAX) {
        rows.push(vec![
            format!("  {:.0}-{:.0}", interval.end_us - length_us, interval.end_us),
            format!("{:.3}", interval.fair_bps / 1e9),
            percent(interval.min),
            percent(interval.max),
            format!("{:.6}", interval.jain),
        ]);
    }
    if rows.len() > 2 {
        rows.push(vec![
            "  worst".to_owned(),
            String::new(),
            percent(shares.min),
            percent(shares.max),
            format!("{:.6}", shares.jain_min),
        ]);
    }
    text += &align(&rows);
    if let Some((number, share)) = shares.furthest_flow() {
        let flow = &result.flow_records[number];
        let (src, dst, share) = (flow.src, flow.dst, percent(share));
        text += &format!("  furthest from its share: flow {} ({src} -> {dst}), {share}\n", flow.id);
    }
    let bound = DEVIATION_MAX * 100.0;
    let verdict = verdict(shares.is_fair());
    text + &format!("  every flow within {bound:.0} %, Jain at least {JAIN_MIN}: {verdict}\n")
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn recovery(who: &str, result: &RunResult, r: &Recovery) -> String {
    let after =
        |us: Option<f64>| us.map_or_else(|| "never".to_owned(), |u| format!("after {u:.0} us"));
    let within = |us: Option<f64>| verdict(us.is_some_and(|u| u <= r.bound_us));
    let until = r.until_us.map_or_else(String::new, |us| format!(", repaired at {us:.0} us"));
    let mut text = format!("{who}: {} breaks at {:.0} us{until}\n", r.links, r.at_us);
    let mut line = |what: &str, found: String| text += &format!("  {what:<30}{found}\n");
    line("goodput before", format!("{:.1} Gb/s", r.before_bps / 1e9));
    let bound = r.bound_us;
    line(
        "back at 7/8 of that",
        format!("{} (bound {bound:.0} us): {}", after(r.back_us), within(r.back_us)),
    );
    let steady = r.steady_us;
    line("  and stays there", format!("{}: {}", after(steady), within(steady)));
    if let Some(left) = r.left {
        let steady = r.steady_of_left_us;
        line(
            "stays at 7/8 of what is left",
            format!("{} ({left:.3} is left): {}", after(steady), within(steady)),
        );
    }
    line(
        "lowest interval",
        format!("{:.3} of before, {:.0} us after it broke", r.worst, r.worst_us),
    );
    line("average until the repair", format!("{:.3} of before", r.during));
    let from_bound = match (r.from_bound, r.is_used_from_bound()) {
        (Some(share), Some(met)) => {
            format!("{share:.3} of before (7/8: 0.875): {}", verdict(met))
        }
        _ => "not measured: the bound is later".to_owned(),
    };
    line("  from the bound on", from_bound);
    if let Some(repaired) = r.repaired {
        line("level after the repair", format!("{repaired:.3} of before"));
    }
    if r.until_us.is_some() && r.left.is_some() {
        let used = r.used_again_us;
        line(
            "link at half its load again",
            format!("{} from the repair on: {}", after(used), verdict(used.is_some())),
        );
    }
    line("datagrams failed", format!("{}: {}", result.failed, verdict(result.failed == 0)));
    text
}

fn timeline(r: &Recovery) -> String {
    let mut text =
        format!("  goodput in Gb/s, intervals of {:.0} us, from when it broke:\n", r.interval_us);
    let broke = r.timeline.partition_point(|(at_us, _)| *at_us < 0.0);
    let (before, after) = r.timeline.split_at(broke);
    for part in [before, after] {
        for some in part.chunks(ACROSS) {
            text += &format!("  {:>6.0} us", some[0].0);
            some.iter().for_each(|(_, bps)| text += &format!(" {:>8.1}", bps / 1e9));
            text.push('\n');
        }
    }
    text
}
