//! Runs of `ip -batch`: many changes of the network with one start of the program.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::failure::Missing;

/// Maximum number of characters of a program's messages in an error.
const SAID_CHARS_MAX: usize = 1000;

/// Runs `ip -batch` with these arguments, and lines at its standard input.
///
/// # Errors
/// If `ip` fails: the last line that has failed, and the end of the program's error messages.
pub(crate) fn batch(words: &[&str], lines: &str) -> Result<()> {
    // The lines are in memory, not in a pipe: `ip` may end before it has read all of them, or may
    // have to write many messages before it reads on.
    let mut input = File::from(memfd_create("srd-ip", MemfdFlags::CLOEXEC).context("ip")?);
    input.write_all(format!("{lines}\n").as_bytes()).context("ip")?;
    input.rewind().context("ip")?;
    let mut command = Command::new("ip");
    let output = command.args(words).stdin(input).stdout(Stdio::null()).output();
    let output = output.with_context(|| Missing::program("ip", "iproute2"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    let (begin, _) = said.char_indices().rev().take(SAID_CHARS_MAX).last().unwrap_or_default();
    let line = failed_line(said).and_then(|number| lines.lines().nth(number.checked_sub(1)?));
    bail!("ip {}: {}", line.unwrap_or("-batch"), &said[begin..])
}

/// Returns the number of the last line that `ip -batch` reports as failed.
pub(crate) fn failed_line(said: &str) -> Option<usize> {
    let (_, behind) = said.rsplit_once("Command failed -:")?;
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_fails_is_read_from_the_message() {
        let said = "ip route add 192.0.2.1/32: RTNETLINK answers: File exists\nCommand failed -:17";
        assert_eq!(failed_line(said), Some(17));
        assert_eq!(failed_line("Command failed -:"), None);
        assert_eq!(failed_line("killed"), None);
    }

    /// In an earlier version the error was "Broken pipe", because `ip` did not read all lines, or a
    /// text with all lines.
    #[test]
    fn regression_a_batch_that_fails_at_its_first_line_says_which_and_why() {
        let lines = vec!["link show dev srd-no-such"; 10_000].join("\n");
        let error = format!("{:#}", batch(&["-batch", "-"], &lines).unwrap_err());
        assert!(error.starts_with("ip link show dev srd-no-such: Device"), "{error}");
        assert_eq!(failed_line(&error), Some(1), "{error}");
        assert!(error.len() < 2000, "{}", error.len());
        let error = format!("{:#}", batch(&["-force", "-batch", "-"], &lines).unwrap_err());
        assert_eq!(failed_line(&error), Some(10_000));
    }
}
