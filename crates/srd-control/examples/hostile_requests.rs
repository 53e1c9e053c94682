//! Sends random requests to a control plane, and checks the rules of
//! `crates/srd-control/tests/support/hostile`.
//!
//! ```sh
//! cargo run --release -p srd-control --example hostile_requests -- --count 1000000 --seed 1
//! ```
//!
//! The program ends with a panic at the first answer that breaks a rule. The text names the seed of
//! its world, with which `--count 1000 --seed SEED` repeats it.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../tests/support/hostile/mod.rs"]
mod hostile;

use hostile::{Outcomes, WORLD_REQUESTS};

/// Returns the number after an option.
fn option(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().map_or(default, |value| value.parse().unwrap())
}

/// Largest resident memory of this process in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1000
}

fn main() {
    let (count, seed) = (option("--count", 10_000), option("--seed", 1));
    let mut outcomes = Outcomes::default();
    let began = std::time::Instant::now();
    for world in 0..count.div_ceil(WORLD_REQUESTS) {
        let requests = (count - world * WORLD_REQUESTS).min(WORLD_REQUESTS);
        hostile::run(seed + world, requests, &mut outcomes);
        if world % 100 == 99 {
            println!("{} requests, {} MB", (world + 1) * WORLD_REQUESTS, peak());
        }
    }
    println!("{count} requests in {:.0} s, {} MB at most", began.elapsed().as_secs_f64(), peak());
    println!("largest answer: {} bytes", outcomes.bytes_max);
    let (time, request) = &outcomes.slowest;
    println!("longest time: {:.1} ms, {:.200}", time.as_secs_f64() * 1e3, request);
    println!("{} actions had success", outcomes.actions.len());
    for name in srd_control::actions::names() {
        if !outcomes.actions.contains_key(name) {
            println!("  never: {name}");
        }
    }
    for (code, count) in &outcomes.codes {
        println!("{count:>8} {code}");
    }
}
