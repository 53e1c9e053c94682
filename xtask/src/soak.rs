//! `cargo xtask soak`: runs random worlds with random faults; a seed determines each world.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use srd_sim::soak::{self, Failure, Passed, Plan};

/// Number of completed seeds between two lines of progress.
const PROGRESS: u64 = 100;

/// Counters over all seeds that passed: sums, and largest values.
#[derive(Default)]
struct Totals {
    packets: u64,
    delivered: u64,
    by_srd: u64,
    again_after_restart: u64,
    liveness_us_max: u64,
    quiet_packets_max: u64,
    statuses: BTreeMap<u8, u64>,
}

impl Totals {
    fn add(&mut self, passed: &Passed) {
        self.packets += passed.packets;
        self.delivered += passed.delivered;
        self.by_srd += passed.by_srd;
        self.again_after_restart += passed.again_after_restart;
        self.liveness_us_max = self.liveness_us_max.max(passed.liveness_us);
        self.quiet_packets_max = self.quiet_packets_max.max(passed.quiet_packets);
        for (status, count) in &passed.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
    }
}

/// Runs `seeds` seeds beginning at `from` on `threads` threads; with 0, on one thread per core.
/// With `verbose`, shows the parameters of each seed.
///
/// # Errors
/// An error, if any seed fails. For each failed seed, its reason and the command that reproduces it
/// are printed.
pub(crate) fn run(seeds: u64, from: u64, threads: usize, verbose: bool) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if threads == 0 { cores } else { threads };
    let begin = std::time::Instant::now();
    let done = AtomicU64::new(0);
    let totals = Mutex::new(Totals::default());
    let each = |seed: u64, result: &Result<Passed, Failure>| {
        if verbose {
            println!("seed {seed}\n{}{result:?}\n", Plan::new(seed));
        }
        match result {
            Ok(passed) => totals.lock().expect("nobody panics with the lock").add(passed),
            Err(failure) => println!("{}", explain(failure)),
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(PROGRESS) && done < seeds {
            eprintln!("{done} of {seeds} seeds, {:.0} s", begin.elapsed().as_secs_f64());
        }
    };
    let (failures, digest) = soak::run(from, seeds, threads, &each);
    let totals = totals.into_inner().expect("nobody panicked with the lock");
    println!(
        "{seeds} seeds in {:.1} s on {threads} threads: {} packets, {} datagrams delivered \
         ({} again to a restarted receiver)",
        begin.elapsed().as_secs_f64(),
        totals.packets,
        totals.delivered,
        totals.again_after_restart
    );
    println!("{} frames of clouds came by SRD", totals.by_srd);
    println!("ends: {}", statuses(&totals.statuses));
    println!(
        "flows were done at most {} us after the faults; at most {} packets in 10 quiet ms",
        totals.liveness_us_max, totals.quiet_packets_max
    );
    println!("digest {digest:016x}");
    if failures.is_empty() {
        return Ok(());
    }
    for failure in &failures {
        println!("{}", explain(failure));
    }
    bail!("{} of {seeds} seeds failed", failures.len())
}

fn explain(failure: &Failure) -> String {
    let Failure { seed, reason } = failure;
    format!("seed {seed} failed: {reason}\n  cargo xtask soak --from {seed} --seeds 1 -v")
}

fn statuses(counts: &BTreeMap<u8, u64>) -> String {
    let list: Vec<_> = counts
        .iter()
        .map(|(n, count)| format!("{count} {}", soak::ledger::status_name(*n)))
        .collect();
    list.join(", ")
}
