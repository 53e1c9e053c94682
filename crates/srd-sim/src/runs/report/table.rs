//! The results of runs as a text table.

use super::columns::{align, row};
use super::median;
use super::notes::notes;
use crate::runs::run::RunResult;

/// Largest number of runs for which the table has a line for each run. For more runs, it has only a
/// line for each transport.
const ROWS_MAX: usize = 32;

/// Returns the results as text: a table of runs, unless there are many; a table of transports, if
/// there are several seeds; then notes about the runs over time.
pub fn table(results: &[RunResult]) -> String {
    let mut text = String::new();
    if results.len() <= ROWS_MAX {
        text += &align(&every(results));
    }
    let seeds = results.iter().any(|r| r.seed != results[0].seed);
    if seeds {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &align(&by_transport(results));
    }
    for note in results.iter().flat_map(notes) {
        text.push('\n');
        text += &note;
    }
    text
}

fn every(results: &[RunResult]) -> Vec<Vec<String>> {
    let mut rows = vec![row([
        "transport",
        "seed",
        "flows",
        "undone",
        "ideal us",
        "p50 us",
        "p99 us",
        "max us",
        "p99/ideal",
        "max/ideal",
        "max/min",
        "Jain",
        "Gb/s",
        "again %",
        "drops",
        "queue kB",
        "end us",
        "Mhop/s",
    ])];
    for r in results {
        // Flows that are endless or unfinished have no completion times, so the cells show "-".
        let shown = |is_known: bool, text: String| if is_known { text } else { "-".to_owned() };
        let time = |text: String| shown(has_times(r), text);
        let is_finite = r.flow_records.iter().any(|f| f.bytes.is_some());
        rows.push(vec![
            r.transport.to_owned(),
            r.seed.to_string(),
            r.flows.to_string(),
            r.unfinished.to_string(),
            shown(is_finite, format!("{:.1}", r.ideal_wire_us)),
            time(format!("{:.1}", r.fct_us.p50)),
            time(format!("{:.1}", r.fct_us.p99)),
            time(format!("{:.1}", r.fct_us.max)),
            time(format!("{:.3}", r.over_ideal_wire.p99)),
            time(format!("{:.3}", r.max_over_ideal)),
            time(format!("{:.2}", r.max_over_min)),
            format!("{:.4}", r.jain),
            format!("{:.1}", r.goodput_bps / 1e9),
            format!("{:.3}", r.retransmitted_share * 100.0),
            r.drops.to_string(),
            format!("{:.0}", r.queue_bytes_max as f64 / 1e3),
            format!("{:.1}", r.sim_end_us),
            format!("{:.2}", r.cost.packet_hops_per_cpu_s / 1e6),
        ]);
    }
    rows
}

/// Whether a run has completion times: at least one flow finished.
fn has_times(result: &RunResult) -> bool {
    result.flow_records.iter().any(|flow| flow.fct_us.is_some())
}

/// Returns the rows of the table of transports: median over the seeds, and worst seed. A seed of
/// which no flow finished has no completion times, and only its undone flows count.
fn by_transport(results: &[RunResult]) -> Vec<Vec<String>> {
    let mut rows = vec![row([
        "over the seeds",
        "seeds",
        "undone",
        "p50/ideal",
        "worst",
        "p99/ideal",
        "worst",
        "max/ideal",
        "worst",
    ])];
    let mut names: Vec<&str> = Vec::new();
    for result in results {
        if !names.contains(&result.transport) {
            names.push(result.transport);
        }
    }
    for name in names {
        let of = || results.iter().filter(|r| r.transport == name);
        let mut cells = vec![
            name.to_owned(),
            of().count().to_string(),
            of().map(|r| r.unfinished).sum::<usize>().to_string(),
        ];
        for pick in [
            (|r| r.over_ideal_wire.p50) as fn(&RunResult) -> f64,
            |r| r.over_ideal_wire.p99,
            |r| r.over_ideal_wire.max,
        ] {
            let mut values: Vec<f64> = of().filter(|r| has_times(r)).map(pick).collect();
            values.sort_by(f64::total_cmp);
            for value in [median(&values), values.last().copied()] {
                cells.push(value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}")));
            }
        }
        rows.push(cells);
    }
    rows
}
