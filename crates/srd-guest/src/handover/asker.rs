//! Which processes may take a card over.

use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::socket_peercred;

use super::VERSION;

/// Finds what speaks against a hand-over, before anything is stopped.
pub(crate) fn check(stream: &UnixStream, version: u32) -> Result<()> {
    let by = socket_peercred(stream).context("the process that asks")?;
    let own = rustix::process::geteuid();
    if !by.uid.is_root() && by.uid != own {
        bail!("only root and the user of this card may take it over");
    }
    if version != VERSION {
        bail!(
            "the card that runs hands its state over in form {VERSION}, and the new one reads form \
             {version}: end the card that runs first (connections that it tracks end with it)"
        );
    }
    Ok(())
}
