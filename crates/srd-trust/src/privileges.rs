//! Privileges of the processes of `srd up` and `srd card up`.
//!
//! | | what moves packets, once it is set up | `srd network` | `srd card-helper` |
//! |---|---|---|---|
//! | capabilities | none | `CAP_NET_ADMIN` | [`HELPER`] |
//! | bounding set | empty | `CAP_NET_ADMIN` | [`HELPER`] |
//! | new privileges by running programs | none | none | none |
//! | core dumps | none | none | none |
//! | started as root, user | `srd`, or `nobody` (see [`leave_root`]) | `nobody` | root |
//!
//! The bounding set can be cut by root only; the systemd unit `srd@` cuts it for the user `srd`.

use std::io;

use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::memory;

/// Capabilities have numbers below this one.
const CAPABILITIES_MAX: u32 = 64;
/// Capabilities that the helper of a card keeps: for devices and routes; for namespaces and the
/// mounts that are their names; for finding and ending the programs inside; for files and sockets
/// of other users.
pub const HELPER: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::DAC_OVERRIDE);
/// The account of the package's unit.
pub const OWN_ACCOUNT: &str = "srd";
/// The account that owns nothing.
pub const NO_ACCOUNT: &str = "nobody";
/// Its number where the machine has no such name.
const NO_ACCOUNT_ID: u32 = 65_534;

/// Whether this process may make interfaces and mark packets.
pub fn may_administer() -> bool {
    thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Of a process that runs as root and has no threads: becomes the user `srd`, or `nobody` where
/// there is none, if that user `can_reload`: if it can read again what a reload reads. Otherwise
/// the process stays root, without capabilities, because a reload would fail.
/// Returns the name of the user that could not, for a warning.
///
/// # Errors
/// An error of the operating system.
pub fn leave_root(can_reload: impl FnOnce() -> bool) -> io::Result<Option<String>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    cut_bounding_set(CapabilitySet::empty());
    let account = account(&[OWN_ACCOUNT, NO_ACCOUNT]);
    let (uid, gid) = (account.uid, account.gid);
    let root = (Uid::ROOT, Gid::ROOT);
    let before = rustix::process::getgroups().map_err(failed("cannot read our groups"))?;
    // The saved user stays root until it is decided.
    become_user(None, uid, None, gid)?;
    if can_reload() {
        thread::set_thread_res_uid(None, root.0, None).map_err(failed("cannot change the user"))?;
        become_user(uid, uid, uid, gid)?;
        return Ok(None);
    }
    thread::set_thread_res_uid(None, root.0, None).map_err(failed("cannot change the user"))?;
    thread::set_thread_res_gid(root.1, root.1, root.1)
        .map_err(failed("cannot change the group"))?;
    thread::set_thread_groups(&before).map_err(failed("cannot change groups"))?;
    Ok(Some(account.name))
}

/// Changes groups, group and user, in the order in which root may.
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

/// Gives up every capability, for good. Threads that exist already keep theirs: call this
/// before any is started.
///
/// # Errors
/// An error of the operating system.
pub fn drop_all() -> io::Result<()> {
    restrict(CapabilitySet::empty())
}

/// Keeps `CAP_NET_ADMIN` alone, for good; a process of root becomes `nobody`.
///
/// # Errors
/// An error of the operating system.
pub fn keep_network_only() -> io::Result<()> {
    let keep = CapabilitySet::NET_ADMIN;
    if geteuid().is_root() {
        cut_bounding_set(keep);
        thread::set_keep_capabilities(true).map_err(failed("cannot keep a capability"))?;
        let account = account(&[NO_ACCOUNT]);
        become_user(account.uid, account.uid, account.uid, account.gid)?;
        // Back in the effective set, from the permitted one.
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

/// Gives up everything but what a helper of a card needs ([`HELPER`]), as far as this process has
/// it, for good.
///
/// # Errors
/// An error of the operating system.
pub fn keep_helper_only() -> io::Result<()> {
    let has = thread::capabilities(None).map_err(failed("cannot read capabilities"))?;
    restrict(HELPER.intersection(has.permitted))
}

/// An error with what failed before it.
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
    // Keys are in memory. After the change of the user, which would undo it.
    memory::forbid_core_dumps()
}

/// Takes what programs could gain from the bounding set. Without `CAP_SETPCAP` this is refused,
/// and `no_new_privs` alone keeps programs from gaining anything.
fn cut_bounding_set(keep: CapabilitySet) {
    for number in 0..CAPABILITIES_MAX {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        let is_there = thread::capability_is_in_bounding_set(capability).unwrap_or(false);
        if is_there && !keep.contains(capability) {
            let _ = thread::remove_capability_from_bounding_set(capability);
        }
    }
}

/// Whether a process of this user may be one of ours: the users that daemons and network processes
/// become, and the one that this process is.
pub fn may_be_ours(user: Uid) -> bool {
    let ours = |name| account(&[name, NO_ACCOUNT]).uid == user;
    user.is_root() || user == geteuid() || ours(OWN_ACCOUNT) || ours(NO_ACCOUNT)
}

/// The user that a daemon becomes which root or the package's unit has started.
pub fn user_of_daemons() -> u32 {
    account(&[OWN_ACCOUNT, NO_ACCOUNT]).uid.as_raw()
}

/// The user that a daemon of root's becomes, whose keys root may use: it has the package's account.
pub fn own_user() -> Option<u32> {
    let is_root = geteuid().is_root();
    let account = is_root.then(|| account(&[OWN_ACCOUNT]))?;
    (account.name == OWN_ACCOUNT).then(|| account.uid.as_raw())
}

struct Account {
    name: String,
    uid: Uid,
    gid: Gid,
}

/// The first of these accounts that this machine has.
fn account(names: &[&str]) -> Account {
    for name in names {
        if let Ok(Some(user)) = nix::unistd::User::from_name(name)
            && user.uid.as_raw() != 0
        {
            let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
            return Account {
                name: (*name).into(),
                uid: Uid::from_raw(uid),
                gid: Gid::from_raw(gid),
            };
        }
    }
    let id = NO_ACCOUNT_ID;
    Account { name: NO_ACCOUNT.into(), uid: Uid::from_raw(id), gid: Gid::from_raw(id) }
}
