//! The results as a table for people.

use crate::table::Table;
use srd_sim::run::RunResult;
use srd_sim::scenario::Scenario;

/// Beyond so many runs, only a line per transport is shown.
const ROWS_MAX: usize = 32;

/// The whole table.
pub(super) fn table(scenario: &Scenario, results: &[RunResult]) -> String {
    let mut text = scenario.name.clone();
    if !scenario.description.is_empty() {
        text += &format!(": {}", scenario.description.trim());
    }
    text += "\n\n";
    if results.len() <= ROWS_MAX {
        text += &every(results).to_string();
    }
    let many = results.iter().any(|r| r.seed != results[0].seed);
    if many {
        if results.len() <= ROWS_MAX {
            text += "\n\n";
        }
        text += &by_transport(results).to_string();
    }
    text
}

fn every(results: &[RunResult]) -> Table {
    let mut table = Table::new([
        "transport",
        "seed",
        "flows",
        "ideal us",
        "p50",
        "p99",
        "max",
        "max/ideal",
        "max/min",
        "Jain",
        "again %",
        "drops",
        "end us",
        "Mhops/s",
    ]);
    for result in results {
        table.row([
            result.transport.to_owned(),
            result.seed.to_string(),
            result.flows.to_string(),
            format!("{:.1}", result.ideal_wire_us),
            format!("{:.1}", result.fct_us.p50),
            format!("{:.1}", result.fct_us.p99),
            format!("{:.1}", result.fct_us.max),
            format!("{:.3}", result.max_over_ideal),
            format!("{:.2}", result.max_over_min),
            format!("{:.4}", result.jain),
            format!("{:.3}", result.retransmitted_share * 100.0),
            result.drops.to_string(),
            format!("{:.1}", result.sim_end_us),
            format!("{:.2}", result.cost.packet_hops_per_cpu_s / 1e6),
        ]);
    }
    table
}

/// Over the seeds: median and worst.
fn by_transport(results: &[RunResult]) -> Table {
    let mut table = Table::new([
        "transport",
        "seeds",
        "max/ideal: median",
        "worst",
        "p99/ideal: median",
        "worst",
        "unfinished",
    ]);
    let mut names: Vec<&str> = results.iter().map(|r| r.transport).collect();
    names.dedup();
    for name in names {
        let of = || results.iter().filter(|r| r.transport == name);
        let [max_median, max_worst] = spread(of().map(|r| r.max_over_ideal).collect());
        let [p99_median, p99_worst] = spread(of().map(|r| r.over_ideal_wire.p99).collect());
        table.row([
            name.to_owned(),
            of().count().to_string(),
            format!("{max_median:.3}"),
            format!("{max_worst:.3}"),
            format!("{p99_median:.3}"),
            format!("{p99_worst:.3}"),
            of().map(|r| r.unfinished).sum::<usize>().to_string(),
        ]);
    }
    table
}

/// Median and largest.
fn spread(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let median = values.get(values.len() / 2).copied().unwrap_or(0.0);
    [median, values.last().copied().unwrap_or(0.0)]
}
