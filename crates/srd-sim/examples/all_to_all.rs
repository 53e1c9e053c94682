//! An all-to-all exchange as a table: its time over the ideal, the progress of its messages, drops,
//! and packets sent again.
//!
//! `cargo run --release -p srd-sim --example all_to_all -- [--transport NAME] [--seeds N]
//! [KEY=VALUE ...]`
//!
//! The scenario is `scenarios/ranks-all-to-all.toml`. Each KEY=VALUE changes a value of it, as
//! `--set` of `srd sim run` does: `topology.k=8` has 128 ranks, `workload.0.at_once=64` lets each
//! rank have 64 messages in flight.

use std::path::Path;

use srd_sim::run::{Job, RunResult, run};
use srd_sim::scenario::{Override, Scenario, ScenarioError, Transport};

const SCENARIO: &str = include_str!("../../../scenarios/ranks-all-to-all.toml");
/// Shares of the messages whose times are shown, in percent.
const SHARES: [usize; 5] = [10, 50, 90, 99, 100];

fn main() -> Result<(), ScenarioError> {
    let (mut transport, mut seeds, mut overrides) = (Transport::Efa, 1, Vec::new());
    let mut arguments = std::env::args().skip(1);
    let wrong = |what: &str| ScenarioError(format!("{what}: not a valid argument"));
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--transport" => {
                let name = arguments.next().unwrap_or_default();
                let found = Transport::ALL.iter().find(|(_, of)| *of == name);
                transport = found.ok_or_else(|| wrong(&name))?.0;
            }
            "--seeds" => {
                let number = arguments.next().and_then(|text| text.parse().ok());
                seeds = number.ok_or_else(|| wrong("--seeds"))?;
            }
            text => overrides.push(text.parse::<Override>()?),
        }
    }
    let scenario = Scenario::read("all-to-all", SCENARIO, Path::new("."), &overrides)?;
    println!("seed  over ideal  done at us (10, 50, 90, 99, 100 %)  drops  again %  timeouts  fct");
    for seed in 1..=seeds {
        let result = run(&Job { scenario: scenario.clone(), transport, seed })?;
        if let Some(complaint) = result.complaints().first() {
            return Err(ScenarioError(complaint.clone()));
        }
        print_row(seed, &result);
    }
    Ok(())
}

fn print_row(seed: u64, result: &RunResult) {
    let done = |flow: &srd_sim::run::FlowRecord| flow.start_us.zip(flow.fct_us).map(|(a, b)| a + b);
    let mut ends: Vec<f64> = result.flow_records.iter().filter_map(done).collect();
    ends.sort_by(f64::total_cmp);
    let at = SHARES.map(|share| ends[(ends.len() * share).div_ceil(100).max(1) - 1]);
    let at = at.map(|us| format!("{us:.0}")).join(" ");
    println!(
        "{seed:>4}  {:>10.3}  {at}  {:?}  {:.2}  {}  p50 {:.1} p99 {:.1} max {:.0} us  acks {} \
         data {} queue {} kB  cpu {:.0} s",
        result.ideal_goodput_bps / result.goodput_bps,
        result.drops_by_cause,
        result.retransmitted_share * 100.0,
        result.sent.timeouts,
        result.fct_us.p50,
        result.fct_us.p99,
        result.fct_us.max,
        result.sent.ack_packets,
        result.sent.data_packets,
        result.queue_bytes_max / 1000,
        result.cost.cpu_s,
    );
}
