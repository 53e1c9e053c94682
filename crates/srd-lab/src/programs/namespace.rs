//! Existing network namespaces: finding the namespaces of a fabric and the processes inside, and
//! running code inside.
//!
//! A namespace belongs to a fabric if its name has exactly the form `srdlab-<fabric>-(l|s)<number>`
//! or `srdlab-<fabric>-h<n>.<n>`. No other namespace is deleted, and no processes in other
//! namespaces are ended.

use crate::build::id::HostId;
use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const NETNS_DIR: &str = "/run/netns";
/// Time that processes get to end after SIGTERM before they are killed.
const TERMINATE_GRACE: Duration = Duration::from_millis(1500);

/// Returns the path of a named namespace.
pub fn path(name: &str) -> PathBuf {
    Path::new(NETNS_DIR).join(name)
}

/// Whether a namespace name has the form that the fabric `fabric` gives to its own.
pub fn belongs_to(name: &str, fabric: &str) -> bool {
    let rest = name.strip_prefix("srdlab-").and_then(|rest| rest.strip_prefix(fabric));
    let Some(part) = rest.and_then(|rest| rest.strip_prefix('-')) else { return false };
    let number = |digits: &str| digits.parse::<u16>().is_ok_and(|n| n.to_string() == digits);
    match part.as_bytes().first() {
        Some(b'h') => part.parse::<HostId>().is_ok(),
        Some(b'l' | b's') => number(&part[1..]),
        _ => false,
    }
}

/// Returns the existing namespaces of a fabric.
pub fn existing(fabric: &str) -> Result<Vec<String>> {
    let entries = match fs::read_dir(NETNS_DIR) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context(NETNS_DIR),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.context(NETNS_DIR)?.file_name().to_string_lossy().into_owned();
        if belongs_to(&name, fabric) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Runs `work` on a new thread inside of a namespace. Sockets and processes that `work` creates
/// stay in the namespace; the caller's thread stays in its own namespace.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let file = File::open(path(name)).with_context(|| format!("network namespace {name}"))?;
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("cannot enter network namespace {name}"))?;
            Ok(work())
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns the processes, except this process, whose main thread is inside of the named namespaces.
pub fn processes(names: &[String]) -> Vec<(Pid, String)> {
    let key = |path: &Path| fs::metadata(path).ok().map(|m| (m.st_dev(), m.st_ino()));
    let spaces: BTreeMap<_, _> =
        names.iter().filter_map(|name| Some((key(&path(name))?, name))).collect();
    let own = i32::try_from(std::process::id()).ok();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_string_lossy().parse::<i32>().ok();
        let Some(pid) = number.filter(|n| Some(*n) != own).and_then(Pid::from_raw) else {
            continue;
        };
        if let Some(name) = key(&entry.path().join("ns/net")).and_then(|key| spaces.get(&key)) {
            found.push((pid, (*name).clone()));
        }
    }
    found
}

/// Ends the processes inside of the named namespaces, first with SIGTERM and then with SIGKILL.
/// Returns their number.
pub fn terminate(names: &[String]) -> usize {
    let first = processes(names);
    signal(names, &first, Signal::TERM);
    let deadline = Instant::now() + TERMINATE_GRACE;
    loop {
        let left = processes(names);
        if left.is_empty() {
            return first.len();
        }
        if Instant::now() > deadline {
            signal(names, &left, Signal::KILL);
            // The kernel needs a moment to end the processes; deleting the namespace does not
            // depend on it.
            thread::sleep(Duration::from_millis(50));
            return first.len();
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal to processes. Each process is opened as a pidfd and then checked again, because
/// its pid may have been reused.
fn signal(names: &[String], pids: &[(Pid, String)], signal: Signal) {
    let opened: Vec<_> = pids
        .iter()
        .filter_map(|(pid, _)| {
            Some((*pid, rustix::process::pidfd_open(*pid, PidfdFlags::empty()).ok()?))
        })
        .collect();
    if opened.is_empty() {
        return;
    }
    let still = processes(names);
    for (pid, fd) in opened {
        if still.iter().any(|(other, _)| *other == pid) {
            // An error is ignored: the process may have ended by now.
            let _ = rustix::process::pidfd_send_signal(&fd, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_ours() {
        for ours in ["srdlab-a-l0", "srdlab-a-s15", "srdlab-a-h1.30"] {
            assert!(belongs_to(ours, "a"), "{ours}");
        }
        for other in [
            "srdlab-a",
            "srdlab-a-",
            "srdlab-a-x0",
            "srdlab-a-l",
            "srdlab-a-l0x",
            "srdlab-a-h1",
            "srdlab-a-b-l0",
            "srdlab-ab-l0",
            "srdlab-a-l00",
            "xsrdlab-a-l0",
            "a-l0",
            "srdlab-a-l+1",
        ] {
            assert!(!belongs_to(other, "a"), "{other}");
        }
    }
}
