//! `srd lab fetch`: downloads programs that experiments run, from their registries, and verifies
//! their checksums.

use crate::output::{say, tell};
use anyhow::Result;
use clap::{Args, builder::PossibleValuesParser};
use srd_bench::experiment;
use std::path::PathBuf;

const NOTES: &str = "\
EXAMPLES
  sudo apt-get install maven default-jdk-headless python3-venv
  sudo srd lab fetch hadoop
  sudo srd lab run hadoop --case \"dfsio 200 Mb/s\" --reps 3 --report hadoop.html
  sudo srd lab fetch jax && sudo srd lab run training training-mpi

WHAT
  hadoop  HDFS, YARN and MapReduce: jars from Maven Central, 95 MB
  spark   Spark: jars from Maven Central, 269 MB
  dask    Dask: an environment of Python with packages from PyPI, 400 MB
  jax     JAX and mpi4py, for `training` and `training-mpi`: the same, 630 MB

Each file is checked against a SHA-256 that this program knows.";

/// `srd lab fetch`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct FetchArgs {
    /// Programs to fetch.
    #[arg(required = true, value_parser = PossibleValuesParser::new(experiment::fetchable()))]
    what: Vec<String>,
    /// Directory for the programs; `srd lab run --cache` reads it.
    #[arg(long, value_name = "DIR", default_value = experiment::CACHE)]
    cache: PathBuf,
}

/// Fetches the programs.
pub(super) fn run(args: &FetchArgs) -> Result<()> {
    let mut tell = |text: &str| tell!("{text}");
    for what in &args.what {
        let directory = experiment::fetch(what, &args.cache, &mut tell)?;
        say(directory.display().to_string())?;
    }
    Ok(())
}
