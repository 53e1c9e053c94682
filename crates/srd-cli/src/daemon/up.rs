//! `srd up`: the daemon.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use srd_daemon::config::Config;
use srd_daemon::run::Daemon;

/// What to run.
#[derive(Args, Clone, Debug)]
pub(crate) struct UpArgs {
    /// The configuration.
    #[arg(short, long, value_name = "FILE", default_value = "/etc/srd/srd0.toml")]
    config: PathBuf,
    /// Only check the configuration.
    #[arg(long)]
    check: bool,
}

/// Runs `srd up`. Returns the exit code.
pub(crate) fn run(args: &UpArgs) -> Result<u8> {
    let config = Config::load(&args.config)?;
    if args.check {
        return Ok(0);
    }
    let daemon = Daemon::new(config)?;
    daemon.run()?;
    Ok(0)
}
