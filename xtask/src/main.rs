//! Chores of the project: `cargo xtask tidy` checks what no compiler checks, `cargo xtask soak`
//! runs random worlds.

mod soak;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check layering, file and line lengths, module pages, dependencies, and what the
    /// documents promise.
    Tidy,
    /// Run random worlds with random faults. Prints the seed of any failure, which reproduces
    /// it exactly: `cargo xtask soak --from SEED --seeds 1 -v`.
    Soak {
        /// How many seeds.
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Worlds at a time; 0: one per core.
        #[arg(long, default_value_t = 0)]
        threads: usize,
        /// Show what each seed stands for.
        #[arg(short, long)]
        verbose: bool,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Tidy => tidy::run(),
        Chore::Soak { seeds, from, threads, verbose } => soak::run(seeds, from, threads, verbose),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
