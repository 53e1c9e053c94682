//! Waste of incasts whose senders have never met the receiver, as a table: packets sent again,
//! datagrams dropped twice or more, completion over the ideal, and the time of a bystander over its
//! time alone.
//!
//! `cargo run --release -p srd-sim --example open_incasts -- [OPTIONS] [MATRIX.cm ...]`
//!
//! Without `--quick` the table has a sweep over the number of senders and the bytes of each.
//! `--seeds N` runs each case with N seeds. `--first-window PERCENT` sets the first window in
//! percent of the bandwidth-delay product (`unsolicited_percent`). A connection matrix has 128
//! hosts, and start times in microseconds.

use std::path::Path;

use srd_sim::scenario::ScenarioError;
use srd_sim::waste::{Case, Waste};

/// Numbers of senders and KiB of each, with and without a bystander.
const SENDERS: [u32; 5] = [20, 48, 72, 96, 120];
const KIB: [u64; 3] = [64, 256, 1024];
/// The cases of `--quick`.
const QUICK: [(u32, u64, bool); 5] =
    [(48, 64, false), (48, 2048, false), (120, 64, false), (48, 1024, true), (120, 1024, true)];

fn main() -> Result<(), ScenarioError> {
    let mut seeds = 1;
    let (mut quick, mut cases, mut first_window) = (false, Vec::new(), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seeds" => seeds = number(&argument, arguments.next())?,
            "--first-window" => first_window = Some(number(&argument, arguments.next())?),
            "--quick" => quick = true,
            path => cases.push(Case::matrix(Path::new(path))?),
        }
    }
    if quick {
        for (senders, kib, bystander) in QUICK {
            cases.push(Case::crowd(senders, kib << 10, bystander)?);
        }
    } else {
        cases.push(Case::crowd(48, 2 << 20, false)?);
        for (senders, kib) in SENDERS.into_iter().flat_map(|n| KIB.map(|kib| (n, kib))) {
            cases.push(Case::crowd(senders, kib << 10, false)?);
            cases.push(Case::crowd(senders, kib << 10, true)?);
        }
    }
    println!("case                        seed  again %  twice %    drops  max/ideal  bystander");
    let with = |case: Case| match first_window {
        Some(percent) => case.with_first_window(percent),
        None => case,
    };
    let alone = with(Case::bystander_alone()?);
    let alone: Result<Vec<Waste>, _> = (1..=seeds).map(|seed| alone.measure(seed)).collect();
    let alone = alone?;
    for case in cases.into_iter().map(with) {
        for (seed, alone) in (1..).zip(&alone) {
            print_row(&case.name, seed, &case.measure(seed)?, alone.bystander_us);
        }
    }
    Ok(())
}

fn number<N: std::str::FromStr>(option: &str, text: Option<String>) -> Result<N, ScenarioError> {
    let value = text.and_then(|text| text.parse().ok());
    value.ok_or_else(|| ScenarioError(format!("{option} needs a number")))
}

fn print_row(name: &str, seed: u64, waste: &Waste, alone_us: Option<f64>) {
    let beside = waste.bystander_us.zip(alone_us);
    let beside = beside.map_or_else(|| "-".to_owned(), |(us, alone)| format!("{:.3}", us / alone));
    println!(
        "{name:<27} {seed:>4} {:>8.2} {:>8.2} {:>8} {:>10.3} {beside:>10}",
        waste.sent_again * 100.0,
        waste.dropped_again * 100.0,
        waste.drops,
        waste.max_over_ideal,
    );
}
