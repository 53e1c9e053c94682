//! Secrets that a command prints. A server sends a new secret only once. If the command cannot
//! write the secret, no client has it, so the command withdraws the secret.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use anyhow::{Error, Result};

use crate::output::tell;

/// Mode bits with which users other than the owner may read or change a file.
const OTHERS: u32 = 0o077;

/// Prints a warning if standard output is a file that others may read or change. `name`: the secret
/// that follows, such as `key`.
pub(crate) fn warn_of_open_output(name: &str) {
    if is_open_file(&std::io::stdout()) {
        tell!(
            "srd: warning: others may use the file that this {name} goes to; set `umask 077` \
             first, or chmod 600 it now"
        );
    }
}

/// Whether the output is a file that users other than its owner may read or change.
fn is_open_file(to: &impl AsFd) -> bool {
    let facts = to.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    facts.is_ok_and(|facts| facts.is_file() && facts.mode() & OTHERS != 0)
}

/// Returns the outcome of showing a secret, and withdraws the secret if that has failed. `name`:
/// the object with its identifier, such as `the access key SRD1`; `remedy`: the command that
/// withdraws it, for the case that `withdraw` fails.
///
/// # Errors
/// The reason why the secret was not shown, and the state of the object.
pub(crate) fn shown(
    outcome: Result<()>,
    name: &str,
    withdraw: impl FnOnce() -> Result<()>,
    remedy: &str,
) -> Result<()> {
    let Err(error) = outcome else { return Ok(()) };
    let state = match withdraw() {
        Ok(()) => format!("{name} was deleted again, because its secret could not be shown"),
        Err(further) => format!(
            "{name} is valid, but its secret could not be shown, and it could not be deleted \
             ({further:#}): run `{remedy}`"
        ),
    };
    // This is an error of its own: a reader that has closed standard output is otherwise none.
    Err(Error::msg(format!("{error:#}; {state}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    /// Only `srd genkey` and `srd genpsk` warned.
    #[test]
    fn regression_a_file_that_others_may_read_is_noticed() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::tempfile().unwrap();
        for (mode, is_open) in [(0o600, false), (0o640, true), (0o604, true)] {
            file.set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_open_file(&file), is_open, "{mode:o}");
        }
        assert!(!is_open_file(&File::open("/dev/null").unwrap()));
    }

    #[test]
    fn a_secret_that_was_not_shown_is_withdrawn_and_a_shown_one_is_not() {
        let failed = || {
            let closed = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
            Err(closed).context("standard output")
        };
        shown(Ok(()), "the key K", || panic!("it was shown"), "delete K").unwrap();
        let error = shown(failed(), "the key K", || Ok(()), "delete K").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("standard output") && text.contains("K was deleted again"), "{text}");
        assert!(!crate::output::is_broken_pipe(&error), "it must be printed");
        let ended = || Err(anyhow!("no server answers"));
        let text = shown(failed(), "the key K", ended, "delete K").unwrap_err().to_string();
        assert!(text.contains("no server answers") && text.contains("run `delete K`"), "{text}");
    }
}
