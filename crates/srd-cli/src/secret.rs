//! Secrets that a server has made for the user. A server shows a secret once, so a secret that
//! could not be written anywhere is withdrawn.

use anyhow::{Error, Result};

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
