//! `srd lab fetch`: programs that experiments run, from their registries, with checksums.

use crate::output::say;
use anyhow::Result;
use clap::{Args, ValueEnum};
use srd_bench::experiment;
use std::path::PathBuf;

const NOTES: &str = "\
EXAMPLES
  sudo apt-get install maven default-jre-headless
  sudo srd lab fetch hadoop
  sudo srd lab run hadoop --case \"dfsio 200 Mb/s\" --reps 3 --report hadoop.html

Hadoop comes as jars (95 MB), each checked against a SHA-256 that this program knows.";

/// `srd lab fetch`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct FetchArgs {
    /// What to fetch.
    what: What,
    /// Where to put it; `srd lab run --cache` looks there.
    #[arg(long, value_name = "DIR", default_value = experiment::CACHE)]
    cache: PathBuf,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum What {
    /// HDFS, YARN and MapReduce, for the experiment `hadoop`.
    Hadoop,
}

/// Fetches.
pub(super) fn run(args: &FetchArgs) -> Result<()> {
    let mut tell = |text: &str| eprintln!("{text}");
    let directory = match args.what {
        What::Hadoop => experiment::fetch_hadoop(&args.cache, &mut tell)?,
    };
    say(directory.display().to_string())
}
