//! The directory of the control socket, which only its owner and its group may enter.
//!
//! The default directory serves all daemons of the machine, and may have been made by a daemon with
//! other settings. So each start makes the group of its configuration the group of this directory,
//! unless a socket in it belongs to the present group. Directories of other users, and those at
//! other paths, keep their owner, group and mode.
//!
//! The directory is opened without following a symbolic link, and is changed through its
//! descriptor: its path could refer to another file by then.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;
use srd_trust::{place, privileges};

use crate::config::{Control, socket_default};

/// Mode of a new directory: only the owner and the group may enter it.
const MODE: u32 = 0o750;
/// Bits of the mode with which the group may enter and list the directory.
const OF_GROUP: u32 = 0o050;
/// Bit of the mode with which the group may replace files in the directory.
const WRITE_OF_GROUP: u32 = 0o020;
/// Flags to open a directory, but no other file and no symbolic link (`O_DIRECTORY`, `O_NOFOLLOW`).
const NO_LINK: i32 = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).bits().cast_signed();

/// Creates the directory of the socket, or gives the default one to the user and the group of this
/// daemon. Logs a warning if afterwards the group cannot enter the directory, or others than its
/// owner can replace the socket.
///
/// # Errors
/// An error of the operating system.
pub(super) fn prepare(control: &Control) -> io::Result<()> {
    let Some(directory) = control.socket.parent() else { return Ok(()) };
    // Later the process may change to this user, which then has to remove the socket from the
    // directory.
    let user = privileges::own_user();
    let group = control.group.as_ref();
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {
            let made = open(directory)?;
            fchown(&made, user, group.map(|group| group.id))?;
            // The umask of this process may have cleared bits of the mode.
            made.set_permissions(Permissions::from_mode(MODE))?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Any other directory may serve another purpose.
            if Some(directory) == socket_default("srd0").parent() {
                give(&control.socket, directory, user, group.map(|group| group.id))?;
            }
        }
        Err(error) => return Err(error),
    }
    let facts = fs::metadata(directory)?;
    if let Some(warning) = exposed(directory, &facts) {
        tracing::warn!("{warning}");
    }
    if let Some(group) = group
        && !may_enter(&facts, group.id)
    {
        let (name, directory) = (&group.name, directory.display());
        tracing::warn!(
            "members of the group {name} cannot reach the control socket, because they may not \
             enter {directory}: chgrp {name} {directory} && chmod g+rx {directory}, or name a \
             `socket` in [control] in a directory that they may enter"
        );
    }
    Ok(())
}

/// Returns the warning about a directory in which others than its owner can replace the socket.
fn exposed(directory: &Path, facts: &fs::Metadata) -> Option<String> {
    let why = place::open_mode(directory, facts)?;
    let (owner, shown) = (facts.uid(), directory.display());
    Some(format!(
        "others than user {owner}, the owner of {shown}, may replace the control socket in it: \
         {why}"
    ))
}

/// Whether members of a group may enter a directory.
fn may_enter(facts: &fs::Metadata, group: u32) -> bool {
    let mode = facts.mode();
    mode & 0o001 != 0 || (facts.gid() == group && mode & 0o010 != 0)
}

/// Makes a directory of root that of `user`, and a directory of root or of `user` that of `group`,
/// as far as each is given. `socket` is the path of the socket, which is replaced afterwards.
fn give(socket: &Path, directory: &Path, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    let opened = open(directory)?;
    let facts = opened.metadata()?;
    let (owner, own) = (facts.uid(), geteuid().as_raw());
    if let Some(group) = group.filter(|group| *group != facts.gid())
        && (owner == 0 || Some(owner) == user || owner == own)
        && (facts.gid() == 0 || !is_of_sockets(socket, directory, facts.gid())?)
    {
        match give_to_group(&opened, &facts, group) {
            // A daemon without privileges: the caller looks at the result.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            given => given?,
        }
    }
    match user {
        Some(user) if owner == 0 => fchown(&opened, Some(user), None),
        _ => Ok(()),
    }
}

fn give_to_group(opened: &File, facts: &fs::Metadata, group: u32) -> io::Result<()> {
    let mode = facts.mode() & 0o7777;
    // The present group loses the right to write before the other group gets the directory.
    let without = Permissions::from_mode(mode & !WRITE_OF_GROUP);
    opened.set_permissions(without)?;
    fchown(opened, None, Some(group))?;
    opened.set_permissions(Permissions::from_mode((mode & !WRITE_OF_GROUP) | OF_GROUP))
}

/// Whether a socket in a directory, except `socket`, belongs to a group.
fn is_of_sockets(socket: &Path, directory: &Path, group: u32) -> io::Result<bool> {
    let others = fs::read_dir(directory)?.flatten().filter(|entry| entry.path() != socket);
    let mut others = others.filter_map(|entry| entry.metadata().ok());
    Ok(others.any(|facts| facts.file_type().is_socket() && facts.gid() == group))
}

fn open(directory: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(NO_LINK).open(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use std::os::unix::net::UnixListener;

    /// Owner, group and permissions of a directory.
    fn state(directory: &Path) -> (u32, u32, u32) {
        let facts = fs::metadata(directory).unwrap();
        (facts.uid(), facts.gid(), facts.mode() & 0o7777)
    }

    fn set(directory: &Path, (user, group, mode): (u32, u32, u32)) {
        chown(directory, Some(user), Some(group)).unwrap();
        fs::set_permissions(directory, Permissions::from_mode(mode)).unwrap();
    }

    /// Regression: such a directory was used without a warning.
    #[test]
    fn regression_a_directory_that_others_may_write_to_is_a_warning_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        for (mode, is_open) in [(0o750, false), (0o1777, false), (0o770, true), (0o757, true)] {
            fs::set_permissions(at, Permissions::from_mode(mode)).unwrap();
            let said = exposed(at, &fs::metadata(at).unwrap());
            assert_eq!(said.is_some(), is_open, "{mode:04o}");
            let remedy = format!("its mode is {mode:04o} (chmod go-w {})", at.display());
            assert!(said.is_none_or(|said| said.ends_with(&remedy)));
        }
    }

    #[test]
    fn a_directory_of_root_is_given_to_the_user_of_the_daemon_and_no_other_one_is() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("a.sock");
        let owner = || fs::metadata(directory.path()).unwrap().uid();
        let own = owner();
        give(&socket, directory.path(), None, None).unwrap();
        assert_eq!(owner(), own);
        if own == 0 {
            give(&socket, directory.path(), Some(65_533), None).unwrap();
            assert_eq!(owner(), 65_533);
            give(&socket, directory.path(), Some(65_532), None).unwrap();
            assert_eq!(owner(), 65_533, "it is the directory of another user");
        }
        let link = directory.path().join("link");
        symlink(directory.path(), &link).unwrap();
        assert!(give(&socket, &link, Some(own), Some(65_533)).is_err());
    }

    /// A directory that a daemon without a group had made stayed closed to the group of the next
    /// daemon.
    #[test]
    fn regression_a_group_may_enter_the_directory_of_an_earlier_daemon() {
        if !geteuid().is_root() {
            println!("skipped: only root gives files away");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let socket = at.join("a.sock");
        let (daemon, group) = (Some(65_533), Some(4711));
        for mode in [0o750, 0o700, 0o770] {
            set(at, (0, 0, mode));
            assert!(!may_enter(&fs::metadata(at).unwrap(), 4711));
            give(&socket, at, daemon, group).unwrap();
            assert_eq!(state(at), (65_533, 4711, 0o750), "the group never may write");
            assert!(may_enter(&fs::metadata(at).unwrap(), 4711));
        }
        // The directory of the daemon's user, from an earlier start.
        set(at, (65_533, 0, 0o750));
        give(&socket, at, daemon, group).unwrap();
        assert_eq!(state(at), (65_533, 4711, 0o750));
        // The directory of another user.
        set(at, (65_532, 0, 0o700));
        give(&socket, at, daemon, group).unwrap();
        assert_eq!(state(at), (65_532, 0, 0o700));
    }

    #[test]
    fn a_directory_stays_that_of_a_group_to_which_another_socket_belongs() {
        if !geteuid().is_root() {
            println!("skipped: only root gives files away");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let (socket, other) = (at.join("a.sock"), at.join("b.sock"));
        set(at, (0, 4712, 0o750));
        for path in [&socket, &other] {
            drop(UnixListener::bind(path).unwrap());
            chown(path, None, Some(4712)).unwrap();
        }
        give(&socket, at, None, Some(4711)).unwrap();
        assert_eq!(state(at), (0, 4712, 0o750));
        assert!(!may_enter(&fs::metadata(at).unwrap(), 4711));
        fs::remove_file(&other).unwrap();
        give(&socket, at, None, Some(4711)).unwrap();
        assert_eq!(state(at), (0, 4711, 0o750));
    }
}
