//! A stand-in for `ssh` inside of a fabric: runs a command in the host that an address belongs to.
//!
//! Launchers of MPI start their agents on other machines with `ssh HOST COMMAND...`. Here the
//! machines are namespaces. Each namespace gets a different host name, by which an MPI
//! distinguishes machines. As with `ssh`, the words of the command are joined by spaces and passed
//! to a shell.

use crate::build::fabric::Fabric;
use crate::build::id::HostId;
use crate::{build::address, programs::command, sys};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Returns the host name that programs in a host see. The name has no dot, because MPIs cut names
/// at a dot.
#[must_use]
pub fn host_name(host: HostId) -> String {
    format!("h{}-{}", host.leaf, host.host)
}

/// Quotes a word so that a shell reads it as one word.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Replaces this process by a shell that runs a command in a host; returns only on an error.
/// `words` are the arguments of `ssh`: options, which are skipped, then a host, then the command.
///
/// # Errors
/// An error with its reason, if the host or the command is missing, or this process may not enter
/// the host.
pub fn enter(fabric: &Fabric, words: &[OsString]) -> Result<std::convert::Infallible> {
    let words: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let (target, command) = split(&words)?;
    let host = find(fabric, target)?;
    let namespace = fabric.host_namespace(host)?;
    sys::own_host_name(&host_name(host)).context("a host name of its own")?;
    let mut shell = Command::new(command::program("ip")?);
    // `ip netns exec` instead of only setns: it also mounts the /sys/class/net of the host.
    shell.args(["netns", "exec", &namespace, "sh", "-c", &command.join(" ")]);
    Err(shell.exec()).with_context(|| format!("{shell:?}"))
}

/// Returns the host and the command in the arguments of `ssh`. Options before them, some with a
/// value, are skipped.
fn split(words: &[String]) -> Result<(&str, &[String])> {
    let mut rest = words;
    while let Some((first, others)) = rest.split_first() {
        if !first.starts_with('-') {
            if others.is_empty() {
                bail!("no command to run on {first}");
            }
            return Ok((first, others));
        }
        let has_value = ["-o", "-p", "-l", "-i"].contains(&first.as_str());
        rest = others.get(usize::from(has_value)..).unwrap_or_default();
    }
    bail!("no host to enter")
}

/// Returns the host with this address, host name, or name such as `h0.1`. A user name and `@` in
/// front of it are skipped.
fn find(fabric: &Fabric, target: &str) -> Result<HostId> {
    let name = target.rsplit('@').next().unwrap_or(target);
    let ip: Option<IpAddr> = name.parse().ok();
    let is = |host: &HostId| match ip {
        Some(ip) => {
            let own = [crate::Family::V4, crate::Family::V6].map(|f| address::host(*host, f));
            own.contains(&ip) || ip == IpAddr::V4(address::overlay(*host))
        }
        None => host.to_string() == name || host_name(*host) == name,
    };
    let found = fabric.config().hosts().find(is);
    found.with_context(|| format!("fabric `{}` has no host `{name}`", fabric.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn options_of_ssh_are_skipped_with_their_values() {
        let all = words("-x -o BatchMode=yes -l root -q 198.18.0.1 orted -x --y");
        let (host, command) = split(&all).unwrap();
        assert_eq!((host, command.join(" ").as_str()), ("198.18.0.1", "orted -x --y"));
        for bad in ["-x", "-o", "-l root", "h0.0", ""] {
            assert!(split(&words(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_quoted_word_stays_one_word() {
        for word in ["plain", "two words", "it's", "$HOME", "", "a\"b", "--x=/y:1,2", "a;b&"] {
            let script = format!("printf %s {}", quoted(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn names_of_hosts_have_no_dot() {
        assert_eq!(host_name(HostId { leaf: 1, host: 30 }), "h1-30");
    }
}
