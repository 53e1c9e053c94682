//! Checks by which each process of a hand-over examines the other process. The card that takes over
//! has to trust the card that runs, because its data contain names that become parts of paths and
//! commands.

use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use srd_trust::peer;

use super::VERSION;

/// Error message for a process of a user that may not send requests to the card.
pub(crate) const REFUSED: &str = "only root and the user of this card may ask it";

/// Checks whether a hand-over in the requested format is possible, before anything is stopped. The
/// server has already checked the user of the requesting process.
pub(crate) fn check(version: u32) -> Result<()> {
    if version != VERSION {
        bail!(
            "the card that runs hands its state over in form {VERSION}, and the new one reads form \
             {version}: end the card that runs first (connections that it tracks end with it)"
        );
    }
    Ok(())
}

/// Checks the user of the process that listens at the card's socket, before any of its data is
/// trusted.
pub(crate) fn check_giver(stream: &UnixStream) -> Result<()> {
    let checked = peer::check(stream);
    if let Some(of) = checked.as_ref().err().and_then(peer::stranger) {
        bail!(
            "the socket belongs to user {}, which is neither root nor this card's user: it is no \
             card; name another place with --socket",
            of.user
        );
    }
    checked.context("the card that runs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_and_no_other_user_is_refused() {
        let (giver, _taker) = UnixStream::pair().unwrap();
        check_giver(&giver).unwrap();
        check(VERSION).unwrap();
        assert!(check(VERSION + 1).is_err());
    }
}
