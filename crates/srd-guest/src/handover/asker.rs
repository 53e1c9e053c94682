//! Which processes may take a card over, and from which ones: what the card that runs says names
//! files and commands of the card that takes over.

use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, geteuid};

use super::VERSION;

/// Finds what speaks against a hand-over, before anything is stopped.
pub(crate) fn check(stream: &UnixStream, version: u32) -> Result<()> {
    let by = socket_peercred(stream).context("the process that asks")?;
    if !is_trusted(by.uid, geteuid()) {
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

/// Finds what speaks against the process that listens, before it is believed anything.
pub(super) fn check_giver(stream: &UnixStream) -> Result<()> {
    let of = socket_peercred(stream).context("the card that runs")?;
    if !is_trusted(of.uid, geteuid()) {
        bail!(
            "the socket belongs to user {}, which is neither root nor this card's user: it is no \
             card to be taken over; name another place with --socket",
            of.uid.as_raw()
        );
    }
    Ok(())
}

fn is_trusted(other: Uid, own: Uid) -> bool {
    other.is_root() || other == own
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A card that took over believed whoever listened at the socket, and would have run as root
    /// what that one named.
    #[test]
    fn regression_root_and_the_own_user_are_trusted_at_either_end_and_nobody_else() {
        let [root, own, other] = [0, 1000, 65_534].map(Uid::from_raw);
        assert!(is_trusted(root, own) && is_trusted(own, own) && is_trusted(root, root));
        assert!(!is_trusted(other, own) && !is_trusted(other, root) && !is_trusted(own, root));
        let (giver, taker) = UnixStream::pair().unwrap();
        check(&giver, VERSION).unwrap();
        check_giver(&taker).unwrap();
        assert!(check(&giver, VERSION + 1).is_err());
    }
}
