//! Users for processes of a machine without an account `srd`: numbers that no account and no other
//! process has.
//!
//! The user `nobody` is not suitable, because other programs may run as `nobody`, and processes of
//! one user can end each other.
//!
//! A process of root reserves a number by making it its real user, and then reads the users of all
//! other processes. Two processes that choose the same number at the same time find each other, and
//! each of them draws another number. The reservation ends with the process.
//!
//! Bound: a process tries at most `TRIES_MAX` numbers.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;

use nix::unistd::{Gid as AccountGid, Group, Uid as AccountUid, User};
use rustix::process::Uid;
use rustix::thread;

/// First of the numbers. Neither systemd nor the tools that create accounts assign numbers between
/// this one and [`LAST`]; user namespaces of containers contain them.
pub const FIRST: u32 = 60_706;
/// Last of the numbers. The users of `DynamicUser=` of systemd follow.
pub const LAST: u32 = 61_183;
/// Maximum number of numbers that a process tries.
const TRIES_MAX: u32 = 64;

/// Whether a number is one of those that `reserve` returns.
pub fn is_spare(user: u32) -> bool {
    (FIRST..=LAST).contains(&user)
}

/// Reserves a number, and makes it the real user of this process, which runs as root and has no
/// other threads. The caller makes it the effective and the saved user as well.
///
/// # Errors
/// An error of the operating system; or all numbers that were tried are in use.
pub(crate) fn reserve() -> io::Result<u32> {
    for _ in 0..TRIES_MAX {
        let number = draw();
        if has_account(number) {
            continue;
        }
        set_real(Uid::from_raw(number))?;
        if !is_used(number)? {
            return Ok(number);
        }
    }
    set_real(Uid::ROOT)?;
    Err(io::Error::other(format!(
        "the users that were tried, from {FIRST} to {LAST}, are in use: create the user srd, as in \
         adduser --system --group --no-create-home srd"
    )))
}

/// Draws one of the numbers. The hash of the standard library has a random secret.
fn draw() -> u32 {
    let random = RandomState::new().build_hasher().finish();
    let count = u64::from(LAST - FIRST + 1);
    FIRST + u32::try_from(random % count).unwrap_or(0)
}

fn set_real(user: Uid) -> io::Result<()> {
    let failed = |error| {
        io::Error::new(io::Error::from(error).kind(), format!("cannot change the user: {error}"))
    };
    thread::set_thread_res_uid(user, None, None).map_err(failed)
}

/// Whether a user or a group of this machine has the number.
fn has_account(number: u32) -> bool {
    matches!(User::from_uid(AccountUid::from_raw(number)), Ok(Some(_)))
        || matches!(Group::from_gid(AccountGid::from_raw(number)), Ok(Some(_)))
}

/// Whether another process runs as this user.
fn is_used(number: u32) -> io::Result<bool> {
    let failed =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot read /proc: {error}"));
    // In a process namespace of its own, this process has another number in /proc than for itself.
    let own = fs::read_link("/proc/self").unwrap_or_default();
    for entry in fs::read_dir("/proc").map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let is_other = is_process && own.as_os_str() != name;
        // A process may have ended since the directory was read.
        if is_other
            && let Ok(status) = fs::read_to_string(entry.path().join("status"))
            && is_of(&status, number)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the text of /proc/PID/status contains this number as the real, effective, saved or file
/// system user.
fn is_of(status: &str, number: u32) -> bool {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    users.into_iter().flat_map(str::split_whitespace).any(|user| user.parse() == Ok(number))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::*;

    #[test]
    fn numbers_are_drawn_from_the_whole_range() {
        let drawn: BTreeSet<u32> = (0..100_000).map(|_| draw()).collect();
        assert!(drawn.iter().all(|number| is_spare(*number)));
        assert!(drawn.len() > 400, "{}", drawn.len());
        assert!(!is_spare(FIRST - 1) && !is_spare(LAST + 1) && !is_spare(65_534) && !is_spare(0));
    }

    #[test]
    fn a_number_in_any_of_the_four_places_is_in_use() {
        let status = |users: &str| format!("Name:\tx\nUid:\t{users}\nGid:\t0\t0\t0\t0\n");
        for users in ["7\t0\t0\t0", "0\t7\t0\t0", "0\t0\t7\t0", "0\t0\t0\t7"] {
            assert!(is_of(&status(users), 7), "{users}");
        }
        assert!(!is_of(&status("77\t0\t0\t0"), 7) && !is_of(&status("0\t0\t0\t0"), 7));
        assert!(!is_of("", 7));
    }

    #[test]
    fn a_number_of_an_account_or_of_a_process_is_not_free() {
        assert!(has_account(0));
        // The shell has the users of this process.
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_used(rustix::process::geteuid().as_raw()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let is_free = |number: u32| !has_account(number) && !is_used(number).unwrap();
        assert!((FIRST..=LAST).any(is_free));
    }
}
