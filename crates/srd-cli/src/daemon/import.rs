//! `srd import`: the configuration of an interface of WireGuard's in our own form.

use crate::failure::Usage;
use crate::output;
use anyhow::Result;
use clap::Args;
use srd_daemon::config::wireguard::{self, Names};
use std::path::PathBuf;

/// `srd import`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ImportArgs {
    /// The file, for example /etc/wireguard/wg0.conf.
    file: PathBuf,
    /// The name of the new interface.
    #[arg(long, value_name = "NAME", default_value = "srd0")]
    interface: String,
    /// Where the private key will be.
    #[arg(long, value_name = "FILE", default_value = "/etc/srd/private.key")]
    key_file: String,
}

/// Runs `srd import`.
pub(super) fn run(args: &ImportArgs) -> Result<()> {
    let file = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file);
    let text = text.map_err(|e| Usage(format!("cannot read {file}: {e}")))?;
    let names = Names { file: &file, interface: &args.interface, key_file: &args.key_file };
    let made = wireguard::convert(&text, names).map_err(Usage)?;
    output::say(made.trim_end())
}
