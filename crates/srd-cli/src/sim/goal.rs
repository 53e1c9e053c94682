//! `srd sim goal`: writes the schedule of a collective operation as a GOAL file, which can be run
//! or changed.

use crate::failure::usage;
use crate::output;
use anyhow::{Context, Result};
use clap::Args;
use srd_sim::scenario::Bytes;
use srd_sim::workload::goal::write::Collective;
use std::fs;
use std::path::PathBuf;

const EXAMPLES: &str = "\
EXAMPLES
  srd sim goal all-to-all --ranks 256 --bytes 64KiB --out a2a.goal
  srd sim run permutation-1024 --goal a2a.goal --transport srd --transport dctcp
  srd sim goal ring-all-reduce --ranks 8 --bytes 1MiB | less

COLLECTIVES
  ring-all-reduce      each rank passes a part on, twice round; --bytes: the data of a rank
  doubling-all-reduce  in each step an exchange of everything with a rank twice as far away
  all-to-all           every rank sends to every other at once; --bytes: for each other rank
  barrier              in each step a message to a rank twice as far away; --bytes: its size";

/// `srd sim goal`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GoalArgs {
    /// The collective: ring-all-reduce, doubling-all-reduce, all-to-all, barrier.
    #[arg(value_parser = find)]
    collective: Collective,
    /// Number of ranks.
    #[arg(long, value_name = "N")]
    ranks: u32,
    /// Bytes, for example 64KiB.
    #[arg(long, value_name = "SIZE")]
    bytes: Bytes,
    /// The file to write [default: standard output].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn find(name: &str) -> Result<Collective, String> {
    let found = Collective::ALL.into_iter().find(|(_, other)| *other == name);
    let names = || Collective::ALL.map(|(_, name)| name).join(", ");
    found
        .map(|(collective, _)| collective)
        .ok_or_else(|| format!("`{name}` is none of {}", names()))
}

/// Writes the schedule.
pub(super) fn run(args: &GoalArgs) -> Result<()> {
    let text = match args.collective.write(args.ranks, args.bytes.0) {
        Ok(text) => text,
        Err(error) => return usage(error),
    };
    match &args.out {
        Some(file) => {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
        }
        None => output::say(text.trim_end()),
    }
}
