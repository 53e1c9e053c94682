//! `srd lab enter`: runs a command in a host of the lab. Launchers of MPI call it instead of `ssh`.

use super::{NameArgs, open};
use anyhow::Result;
use clap::Args;
use std::ffi::OsString;

/// `srd lab enter`.
#[derive(Args, Clone, Debug)]
pub(crate) struct EnterArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Options of ssh, which are skipped, a host or its address, and a command for its shell.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Replaces this process by the command, which runs in the host.
pub(super) fn run(args: &EnterArgs) -> Result<()> {
    match srd_lab::enter::enter(&open(&args.name)?, &args.words)? {}
}
