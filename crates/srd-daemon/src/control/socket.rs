//! The file of the control socket: creates it with the right owner, group and mode, removes a stale
//! one, and lists those of the default directory.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use srd_trust::socket::{self, Bound};

use super::directory;
use crate::config::{Control, socket_default};

/// Mode of the socket: only the owner may connect to it, and the group of the configuration.
const SOCKET_MODE: u32 = 0o600;
/// Mode of the socket if the configuration names a group.
const SOCKET_MODE_OF_GROUP: u32 = 0o660;
/// Path of the control socket of a card (`srd card up`) of an earlier version, beside the sockets
/// of daemons. A daemon of an interface with the name `card` also has this path; commands reach it
/// by the name of the interface only.
pub const CARD_EARLIER: &str = "/run/srd/card.sock";

impl SocketState {
    /// Whether a configuration describes a socket with this path and this group.
    pub(crate) fn is_of(&self, control: &Control) -> bool {
        let group = control.group.as_ref().map(|group| group.id);
        self.path == control.socket && self.group == group
    }
}

/// A listening control socket. Dropping it removes its file.
#[derive(Debug)]
pub struct Socket {
    pub(super) listener: UnixListener,
    control: Control,
    /// Device and inode numbers of the file that this socket has created.
    identity: (u64, u64),
    /// The user that created this socket first.
    pub(super) user: u32,
    /// Whether dropping the socket removes its file.
    is_ours: AtomicBool,
    /// Whether another process of the daemon removes the file at the end, too.
    has_remover: bool,
}

/// The socket's file and settings, for another process that continues to serve the socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketState {
    path: PathBuf,
    /// Number of the group whose members may connect.
    group: Option<u32>,
    identity: (u64, u64),
    user: u32,
}

impl Socket {
    /// Creates the socket. Call it while the process has its privileges: it may have to create the
    /// socket's directory, and to give the directory and the socket to a user and a group.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if a daemon serves a socket at this path already; otherwise the
    /// system's error. Every error contains a text for people.
    pub fn bind(control: &Control) -> io::Result<Self> {
        let path = &control.socket;
        let because = |what: &str, e: &io::Error| {
            io::Error::new(e.kind(), format!("{what} {}: {e}", path.display()))
        };
        directory::prepare(control).map_err(|e| because("cannot make the directory of", &e))?;
        remove_stale(path)?;
        let group = control.group.as_ref();
        let what = group.map_or_else(
            || String::from("cannot make the control socket"),
            |group| format!("cannot make, for the group {}, the control socket", group.name),
        );
        let mode = group.map_or(SOCKET_MODE, |_| SOCKET_MODE_OF_GROUP);
        let options = socket::Options { mode, group: group.map(|of| of.id), replace: false };
        let Bound { listener, identity } =
            socket::listen(path, options).map_err(|e| because(&what, &e))?;
        let user = rustix::process::geteuid().as_raw();
        let (is_ours, has_remover) = (AtomicBool::new(true), false);
        Ok(Self { listener, control: control.clone(), identity, user, is_ours, has_remover })
    }

    /// Returns the state and the listening socket, for another process that continues to serve it.
    pub(crate) fn state(&self) -> (SocketState, BorrowedFd<'_>) {
        let Self { control, identity, user, .. } = self;
        let group = control.group.as_ref().map(|group| group.id);
        let state =
            SocketState { path: control.socket.clone(), group, identity: *identity, user: *user };
        (state, self.listener.as_fd())
    }

    /// Continues to serve the socket of another process. Dropping the result does not remove the
    /// file of the socket before [`Socket::begin`].
    pub(crate) fn adopt(listener: OwnedFd, state: &SocketState, control: &Control) -> Self {
        let SocketState { identity, user, .. } = *state;
        let control = control.clone();
        let (is_ours, has_remover) = (AtomicBool::new(false), false);
        Self { listener: listener.into(), control, identity, user, is_ours, has_remover }
    }

    /// Takes the socket over from another process, which does not go on.
    pub(super) fn begin(&self) {
        self.is_ours.store(true, Ordering::Relaxed);
    }

    /// Whether this process, and no other one, serves the socket.
    pub(super) fn is_ours(&self) -> bool {
        self.is_ours.load(Ordering::Relaxed)
    }

    /// Records that another process removes the file at the end: the helper of the instances, or
    /// `srd hooks`. This process may have lost the right to do so.
    pub(crate) fn has_remover(&mut self) {
        self.has_remover = true;
    }

    /// Whether all users that may connect may capture packets.
    pub(super) fn permits_captures(&self) -> bool {
        self.control.group_captures
    }

    /// Returns the user that created this socket first.
    pub(crate) fn owner(&self) -> u32 {
        self.user
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.control.socket
    }

    /// Whether the socket's file still exists, so that commands can connect. If the file cannot be
    /// examined, for example because this user may not enter its directory, it is assumed to exist.
    fn is_there(&self) -> bool {
        match fs::symlink_metadata(self.path()) {
            Ok(facts) => (facts.dev(), facts.ino()) == self.identity,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Creates a new socket at the same path if another program has removed the file; `None` if the
    /// file still exists.
    ///
    /// # Errors
    /// The errors of [`Socket::bind`].
    pub(super) fn again(&self) -> io::Result<Option<Self>> {
        if self.is_there() {
            return Ok(None);
        }
        let mut new = Self::bind(&self.control)?;
        // The present user may have fewer rights than the first one.
        new.user = self.user;
        new.has_remover = self.has_remover;
        Ok(Some(new))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Socket {
    /// Removes the file only if this socket has created it: another daemon may have created one at
    /// this path since. Without privileges the removal may fail; in this case the next daemon
    /// removes the file as stale.
    pub(super) fn remove(&self) {
        if self.is_ours.swap(false, Ordering::Relaxed)
            && self.is_there()
            && let Err(error) = fs::remove_file(self.path())
            && !self.has_remover
        {
            tracing::info!(
                "{} stays, until the next start removes it: {error}",
                self.path().display()
            );
        }
    }
}

/// Checks that no daemon serves a socket, before anything changes for a new daemon.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if a daemon serves it.
pub fn check_free(path: &Path) -> io::Result<()> {
    match socket::connect(path) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, served(path))),
    }
}

fn served(path: &Path) -> String {
    let (shown, by) = (path.display(), socket::listener_inserted(path));
    format!("a daemon serves {shown}{by} already; stop it, or choose another name")
}

/// Removes the socket file of a daemon that has ended. Returns an error if a daemon serves it, or
/// if the file is not a socket.
fn remove_stale(path: &Path) -> io::Result<()> {
    let shown = path.display();
    let error = match socket::remove_dead(path) {
        Ok(false) => return Ok(()),
        Ok(true) => {
            tracing::info!("removed {shown}, left behind by a daemon that is gone");
            return Ok(());
        }
        Err(error) => error,
    };
    let what = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{shown} is there and no socket; remove it or name another")
        }
        io::ErrorKind::AddrInUse => served(path),
        _ => format!("cannot remove {shown}, or tell whose it is: {error}"),
    };
    Err(io::Error::new(error.kind(), what))
}

/// Returns the paths of the files `*.sock` in the default directory of control sockets, sorted. The
/// processes that served them may have ended. The socket of a card of an earlier version
/// ([`CARD_EARLIER`]) does not count, because no daemon serves it. The list is empty if this user
/// may not read the directory.
pub fn all() -> Vec<PathBuf> {
    socket_default("srd0").parent().map(all_in).unwrap_or_default()
}

fn all_in(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_socket = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "sock")
            && path.file_name() != Path::new(CARD_EARLIER).file_name()
    };
    let mut found: Vec<PathBuf> = files.filter(is_socket).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::thread;

    #[test]
    fn socket_and_directory_are_for_owner_and_group_only_and_go_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/a.sock");
        let socket = Socket::bind(&Control::at(path.clone())).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o750);
        drop(socket);
        assert!(!path.exists());
    }

    /// The test replaces the file by a symbolic link while sockets are bound, as the user `srd`,
    /// who owns the directory, could do while root starts a daemon.
    #[test]
    fn regression_a_name_that_is_exchanged_for_a_link_changes_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let (path, target) = (directory.path().join("a.sock"), directory.path().join("shadow"));
        fs::write(&target, "precious").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let link = directory.path().join("link");
                while !is_over.load(Ordering::Relaxed) {
                    if symlink(&target, &link).is_ok() {
                        let _ = fs::rename(&path, directory.path().join("away"));
                        let _ = fs::rename(&link, &path);
                    }
                    let _ = fs::remove_file(&path);
                }
            });
            for _ in 0..1000 {
                let _ = Socket::bind(&Control::at(path.clone()));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mode = fs::metadata(&target).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// Creates a stale socket file, as a killed daemon leaves it. The socket is shut down, not only
    /// closed: if another test forks at this moment, its child process keeps the socket open until
    /// it calls `exec`.
    fn leave_stale(path: &Path) {
        let listener = UnixListener::bind(path).unwrap();
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
    }

    #[test]
    fn a_stale_socket_is_replaced_a_living_one_and_another_file_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        leave_stale(&path);
        assert!(path.exists());
        let socket = Socket::bind(&Control::at(path.clone())).unwrap();
        let error = Socket::bind(&Control::at(path.clone())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        // The text named the socket only.
        let process = format!("a.sock (process {}) already", std::process::id());
        assert!(error.to_string().contains(&process), "{error}");
        drop(socket);
        fs::write(&path, "somebody's").unwrap();
        let error = Socket::bind(&Control::at(path.clone())).unwrap_err();
        assert!(error.to_string().contains("no socket"), "{error}");
        assert!(path.exists());
    }

    /// If the daemon accepts no connections at the moment, the start of another daemon fails at
    /// once. In an earlier version, the start waited for the first daemon, without a limit.
    #[test]
    fn regression_a_full_queue_of_connections_delays_no_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let first = Socket::bind(&Control::at(path.clone())).unwrap();
        rustix::net::listen(&first.listener, 0).unwrap();
        let _queued: Vec<_> = std::iter::from_fn(|| socket::connect(&path).ok()).collect();
        let (send, receive) = std::sync::mpsc::channel();
        thread::spawn(move || send.send(Socket::bind(&Control::at(path)).map(drop)));
        let bound = receive.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits");
        assert_eq!(bound.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(first.is_there());
    }

    /// In an earlier version, a daemon that had given up its privileges, and could not enter the
    /// directory any more, reported its own socket as removed.
    #[test]
    fn regression_a_socket_that_this_user_may_not_see_is_not_taken_for_removed() {
        let directory = tempfile::tempdir().unwrap();
        let within = directory.path().join("run");
        let socket = Socket::bind(&Control::at(within.join("a.sock"))).unwrap();
        // The thread below keeps the group of this process.
        fs::set_permissions(&within, Permissions::from_mode(0o700)).unwrap();
        let nobody = rustix::process::Uid::from_raw(65_534);
        thread::scope(|scope| {
            // The change of the user affects only this thread.
            scope.spawn(|| {
                if rustix::thread::set_thread_res_uid(None, nobody, None).is_ok() {
                    let error = fs::symlink_metadata(socket.path()).unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                }
                assert!(socket.again().unwrap().is_none());
            });
        });
        fs::remove_file(socket.path()).unwrap();
        assert!(socket.again().unwrap().is_some());
    }

    #[test]
    fn a_successors_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let first = Socket::bind(&Control::at(path.clone())).unwrap();
        fs::rename(&path, directory.path().join("moved.sock")).unwrap();
        let _second = Socket::bind(&Control::at(path.clone())).unwrap();
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn sockets_of_daemons_are_listed_and_no_other_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        assert!(all_in(directory.path()).is_empty() && all_in(&at("none")).is_empty());
        for name in ["srd8.sock", "srd7.sock", "srd7.pid", "card.sock"] {
            fs::write(at(name), "").unwrap();
        }
        assert_eq!(all_in(directory.path()), [at("srd7.sock"), at("srd8.sock")]);
    }
}
