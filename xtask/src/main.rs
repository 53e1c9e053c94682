//! Chores of the project: `cargo xtask tidy` checks what no compiler checks.

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
}

fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Tidy => tidy::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
