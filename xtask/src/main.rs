//! Maintenance tasks of the project. `cargo xtask tidy` checks rules that no compiler checks,
//! `test` runs all tests, `soak` runs random worlds, `soak-express` runs ENA Express for hours of
//! simulated time, `hostile` sends hostile packets, `instructions` counts instructions, and
//! `ec2-model` cuts the service models of EC2 and Auto Scaling.
//!
//! | module | content |
//! |---|---|
//! | [`tidy`] | checks of sources and documents |
//! | [`suite`] | `test`: one process for each test |
//! | [`soak`], [`express`] | random worlds; the soak of ENA Express |
//! | [`hostile`], [`heap`] | hostile packets; an allocator that counts |
//! | [`instructions`] | instruction counts of the hot paths |
//! | [`ec2_model`] | the service models for `srd-control` |

mod ec2_model;
mod express;
mod heap;
mod hostile;
mod instructions;
mod soak;
mod suite;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Seconds of traffic with faults in an hour of simulated time. In the other 165 seconds, a burst
/// without faults is sent, and then nothing.
const HOUR_S: u64 = 3600 - 165;

/// Maintenance tasks of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check layering, file and line lengths, module pages, dependencies, and statements of the
    /// documents.
    Tidy {
        /// Write generated values: counts that have fallen, and the README's figure.
        #[arg(long)]
        write: bool,
        /// Print the sentences of one count (KIND) in one crate or directory (TREE), for example
        /// `people srd-efa`, and check nothing.
        #[arg(long, num_args = 2, value_names = ["KIND", "TREE"], conflicts_with = "write")]
        list: Option<Vec<String>>,
    },
    /// Run random worlds with random faults. Prints the seed of any failure, which reproduces
    /// it exactly: `cargo xtask soak --from SEED --seeds 1 -v`.
    Soak {
        /// Number of seeds.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Number of worlds that run at a time; 0: one per core.
        #[arg(long, default_value_t = 0)]
        threads: usize,
        /// Show the parameters of each seed.
        #[arg(short, long)]
        verbose: bool,
    },
    /// Run the code of ENA Express for hours of simulated time, while nodes restart, links fail and
    /// settings change, and check order, counters and memory. A seed reproduces a run.
    SoakExpress {
        /// Hours of simulated time. The growth of memory is checked from the third hour on.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
        hours: u32,
        /// Seed of the run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Print the result of each hour.
        #[arg(short, long)]
        verbose: bool,
    },
    /// Build all tests and run each in a separate process, several at a time; as root each
    /// integration test has a separate network, `/run` and process namespace.
    Test(suite::Options),
    /// Count the instructions of the hot paths for a packet, and compare them with the baseline.
    Instructions {
        /// Write the counts as a new baseline instead of comparing them.
        #[arg(long)]
        write: bool,
    },
    /// Send endpoints packets that are changed, cut, replayed or forged, and check that only
    /// counters change. Takes some minutes with a million packets of each kind.
    Hostile {
        /// Number of packets of each kind, for each protection.
        #[arg(long, default_value_t = 1_000_000,
            value_parser = clap::value_parser!(u64).range(1..))]
        packets: u64,
        /// Seed of the run.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Cut the public service model of EC2 or Auto Scaling (`service-2.json.gz` of botocore) down
    /// to the actions in `crates/srd-control/model/actions.txt` or `autoscaling.txt`.
    Ec2Model {
        /// The model.
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Tidy { list: Some(of), .. } => tidy::list(&of[0], &of[1]),
        Chore::Tidy { write, list: None } => tidy::run(write),
        Chore::Soak { seeds, from, threads, verbose } => soak::run(seeds, from, threads, verbose),
        Chore::SoakExpress { hours, seed, verbose } => {
            express::run(express::Settings { seed, hours, hour_s: HOUR_S, verbose })
        }
        Chore::Test(options) => suite::run(&tidy::root(), &options),
        Chore::Instructions { write } => instructions::run(&tidy::root(), write),
        Chore::Ec2Model { file } => ec2_model::run(&tidy::root(), &file),
        Chore::Hostile { packets, seed } => hostile::run(packets, seed),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
