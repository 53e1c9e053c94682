//! `srd sim`: experiments in the simulator.

use anyhow::Result;
use clap::Subcommand;

/// `srd sim`.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Name the scenarios.
    List,
}

/// Runs `srd sim`. Returns the exit code.
pub(crate) fn run(_command: &SimCommand, _progress: bool) -> Result<u8> {
    Ok(0)
}
