//! Privileges of the processes of `srd up` and `srd card up`.
//!
//! | | processes that move packets, after their setup | `srd network` | `srd card-helper` |
//! |---|---|---|---|
//! | capabilities | none | `CAP_NET_ADMIN` | [`HELPER`] |
//! | bounding set | empty | `CAP_NET_ADMIN` | [`HELPER`] |
//! | new privileges by running programs | none | none | none |
//! | core dumps | none | none | none |
//! | started as root, user | `srd`, or a spare one (see [`leave_root`]) | a spare one | root |
//!
//! `srd hooks` keeps the privileges of its start if it has commands to run. Otherwise it keeps only
//! `CAP_DAC_OVERRIDE` ([`keep_removal_only`]).
//!
//! A spare user is a number that no account and no other process has ([`spare`]).
//!
//! Only root can reduce the bounding set. The systemd unit `srd@` does this for the user `srd`.

use std::io;

use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::{memory, spare};

/// Number above all capability numbers: a set of capabilities has 64 bits.
const CAPABILITIES_MAX: u32 = 64;
/// Capabilities that the helper of a card keeps: for devices and routes; for namespaces and the
/// mounts that name them; for finding and ending programs inside of namespaces; for files and
/// sockets of other users.
pub const HELPER: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::DAC_OVERRIDE);
/// Name of the user as which the package's systemd unit runs daemons.
pub const OWN_ACCOUNT: &str = "srd";

/// Whether this process may create network interfaces and set packet marks.
pub fn may_administer() -> bool {
    thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Whether this process may create network namespaces, and devices in them.
pub fn may_make_namespaces() -> bool {
    let needed = CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN);
    thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Whether this process has no capability, even if its user is root.
pub fn has_none() -> bool {
    thread::capabilities(None).is_ok_and(|sets| sets.permitted.is_empty())
}

/// Changes the user of a process that runs as root and has no other threads: to `srd`, or to a
/// spare user if there is no user `srd`. The change is kept only if `can_reload` returns true for
/// the new user, which means that this user can read the files of a reload. If it returns false, a
/// reload would fail, so the process stays root, and this function returns the name of the user
/// (the number of a spare one), for a warning. The caller drops the capabilities ([`drop_all`]).
///
/// # Errors
/// An error of the operating system, if users or capabilities cannot be changed; or no user is
/// free.
pub fn leave_root(can_reload: impl FnOnce() -> bool) -> io::Result<Option<String>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    cut_bounding_set(CapabilitySet::empty());
    let account = own_account().map_or_else(spare_account, Ok)?;
    let (uid, gid) = (account.uid, account.gid);
    let root = (Uid::ROOT, Gid::ROOT);
    let before = rustix::process::getgroups().map_err(failed("cannot read our groups"))?;
    // The saved user stays root until `can_reload` has been evaluated.
    become_user(None, uid, None, gid)?;
    if can_reload() {
        thread::set_thread_res_uid(None, root.0, None).map_err(failed("cannot change the user"))?;
        become_user(uid, uid, uid, gid)?;
        return Ok(None);
    }
    thread::set_thread_res_uid(root.0, root.0, None).map_err(failed("cannot change the user"))?;
    thread::set_thread_res_gid(root.1, root.1, root.1)
        .map_err(failed("cannot change the group"))?;
    thread::set_thread_groups(&before).map_err(failed("cannot change groups"))?;
    Ok(Some(account.name))
}

/// Changes supplementary groups, group and user. In another order, the later changes would not be
/// permitted.
fn become_user(
    real: impl Into<Option<Uid>>,
    effective: Uid,
    saved: impl Into<Option<Uid>>,
    gid: Gid,
) -> io::Result<()> {
    thread::set_thread_groups(&[]).map_err(failed("cannot leave groups"))?;
    thread::set_thread_res_gid(gid, gid, gid).map_err(failed("cannot change the group"))?;
    thread::set_thread_res_uid(real, effective, saved).map_err(failed("cannot change the user"))
}

/// Drops every capability permanently. Existing threads keep theirs, so call this function before
/// any thread is started.
///
/// # Errors
/// An error of the operating system, if the capabilities cannot be dropped.
pub fn drop_all() -> io::Result<()> {
    restrict(CapabilitySet::empty())
}

/// Keeps only `CAP_NET_ADMIN`, permanently. A process of root also changes to a spare user, which
/// the process that moves packets cannot send signals to.
///
/// # Errors
/// An error of the operating system, if user or capabilities cannot be changed; or no user is free.
pub fn keep_network_only() -> io::Result<()> {
    let keep = CapabilitySet::NET_ADMIN;
    if geteuid().is_root() {
        cut_bounding_set(keep);
        thread::set_keep_capabilities(true).map_err(failed("cannot keep a capability"))?;
        let account = spare_account()?;
        become_user(account.uid, account.uid, account.uid, account.gid)?;
        // Copies the capability from the permitted set back into the effective set.
        let kept = CapabilitySets {
            effective: keep,
            permitted: keep,
            inheritable: CapabilitySet::empty(),
        };
        thread::set_capabilities(None, kept).map_err(failed("CAP_NET_ADMIN is missing"))?;
        thread::set_keep_capabilities(false).map_err(failed("cannot keep a capability"))?;
    }
    restrict(keep)
}

/// Drops all capabilities except those that the helper of a card needs ([`HELPER`]), permanently.
///
/// # Errors
/// An error of the operating system, if the capabilities cannot be read or dropped.
pub fn keep_helper_only() -> io::Result<()> {
    let has = thread::capabilities(None).map_err(failed("cannot read capabilities"))?;
    restrict(HELPER.intersection(has.permitted))
}

/// Keeps only `CAP_DAC_OVERRIDE`, permanently: this process removes a file from the directory of
/// another user.
///
/// # Errors
/// An error of the operating system, if the capabilities cannot be read or dropped.
pub fn keep_removal_only() -> io::Result<()> {
    let has = thread::capabilities(None).map_err(failed("cannot read capabilities"))?;
    restrict(CapabilitySet::DAC_OVERRIDE.intersection(has.permitted))
}

/// Returns an error with a prefix that names the failed operation.
fn failed(what: &str) -> impl FnOnce(Errno) -> io::Error + '_ {
    move |error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{what}: {error}"))
    }
}

fn restrict(keep: CapabilitySet) -> io::Result<()> {
    cut_bounding_set(keep);
    thread::set_no_new_privs(true).map_err(failed("cannot renounce new privileges"))?;
    thread::clear_ambient_capability_set().map_err(failed("cannot clear ambient capabilities"))?;
    let rest =
        CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    thread::set_capabilities(None, rest).map_err(failed("cannot drop capabilities"))?;
    // Keys are in memory. A change of the user would undo this setting, so it is made afterwards.
    memory::forbid_core_dumps()
}

/// Removes all capabilities except `keep` from the bounding set, so that a program that this
/// process starts cannot gain them. Without `CAP_SETPCAP` the kernel refuses this. In this case
/// `no_new_privs` alone prevents programs from gaining capabilities.
fn cut_bounding_set(keep: CapabilitySet) {
    for number in 0..CAPABILITIES_MAX {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        let is_there = thread::capability_is_in_bounding_set(capability).unwrap_or(false);
        if is_there && !keep.contains(capability) {
            let _ = thread::remove_capability_from_bounding_set(capability);
        }
    }
}

/// Whether a process of this user may belong to this software: the user is root, the current user,
/// or a user to which daemons and network processes change.
pub fn may_be_ours(user: Uid) -> bool {
    user.is_root() || user == geteuid() || is_of_daemons(user.as_raw())
}

/// Whether a daemon that root or the package's systemd unit has started may run as this user.
pub fn is_of_daemons(user: u32) -> bool {
    spare::is_spare(user) || own_account().is_some_and(|own| own.uid.as_raw() == user)
}

/// Returns the number of the user `srd`, if this process runs as root and the user exists. A daemon
/// that root has started changes to this user, and may use the user's key files.
pub fn own_user() -> Option<u32> {
    let own = geteuid().is_root().then(own_account).flatten();
    own.map(|account| account.uid.as_raw())
}

/// Whether this machine has the user `srd`.
pub fn has_own_account() -> bool {
    own_account().is_some()
}

/// Returns the number of the user who has started this process by `sudo` (`SUDO_UID`), if this
/// process runs as root. Files with this user's secrets may be used if the user has named them.
pub fn sudo_user() -> Option<u32> {
    let user = std::env::var("SUDO_UID").ok().filter(|_| geteuid().is_root())?;
    user.parse().ok()
}

/// Returns the user to which a daemon that was started by root has changed, if this process runs as
/// this user: `Some(true)` for the user `srd`, `Some(false)` for a spare user on a machine without
/// a user `srd`. `None` for every other process.
pub fn is_own_account() -> Option<bool> {
    let user = geteuid();
    if own_account().is_some_and(|own| own.uid == user) {
        return Some(true);
    }
    spare::is_spare(user.as_raw()).then_some(false)
}

struct Account {
    name: String,
    uid: Uid,
    gid: Gid,
}

/// Returns the user `srd`, if it exists.
fn own_account() -> Option<Account> {
    let user = nix::unistd::User::from_name(OWN_ACCOUNT).ok().flatten()?;
    let (uid, gid) = (Uid::from_raw(user.uid.as_raw()), Gid::from_raw(user.gid.as_raw()));
    (!uid.is_root()).then(|| Account { name: OWN_ACCOUNT.into(), uid, gid })
}

/// Reserves a spare user, which is already the real user of this process. Its group has the same
/// number.
fn spare_account() -> io::Result<Account> {
    let number = spare::reserve()?;
    let (uid, gid) = (Uid::from_raw(number), Gid::from_raw(number));
    Ok(Account { name: number.to_string(), uid, gid })
}
