//! The file of the control socket: created with the right owner, group and mode, removed if it is
//! stale, and found by the name of the interface.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use srd_trust::socket::{self, Bound};

use crate::config::{Control, socket_default};

/// The owner and the group may enter the directory.
const DIRECTORY_MODE: u32 = 0o750;
/// The owner and the group may connect to the socket.
const SOCKET_MODE: u32 = 0o660;
/// Flags that open only a directory, and follow no link (`O_DIRECTORY`, `O_NOFOLLOW`).
const NO_LINK: i32 = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).bits().cast_signed();

/// A control socket that listens, and whose file is removed when it is dropped.
#[derive(Debug)]
pub struct Socket {
    pub(super) listener: UnixListener,
    control: Control,
    /// Device and inode of our socket's file.
    identity: (u64, u64),
}

impl Socket {
    /// Creates the socket. Call it while the process has its privileges: it may have to create the
    /// directory, and to give both to a group.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if a daemon serves this socket already; otherwise the system's
    /// error. Both have a text for a person.
    pub fn bind(control: &Control) -> io::Result<Self> {
        let path = &control.socket;
        let because = |what: &str, e: &io::Error| {
            io::Error::new(e.kind(), format!("{what} {}: {e}", path.display()))
        };
        make_directory(control).map_err(|e| because("cannot make the directory of", &e))?;
        remove_stale(path)?;
        let group = control.group.as_ref();
        let what = group.map_or_else(
            || String::from("cannot make the control socket"),
            |group| format!("cannot make, for the group {}, the control socket", group.name),
        );
        let options =
            socket::Options { mode: SOCKET_MODE, group: group.map(|of| of.id), replace: false };
        let Bound { listener, identity } =
            socket::listen(path, options).map_err(|e| because(&what, &e))?;
        Ok(Self { listener, control: control.clone(), identity })
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.control.socket
    }

    /// Whether its file still exists, so that commands can find it.
    fn is_there(&self) -> bool {
        let is_ours = |facts: fs::Metadata| (facts.dev(), facts.ino()) == self.identity;
        fs::symlink_metadata(self.path()).is_ok_and(is_ours)
    }

    /// Creates another socket in place of this one, if something has removed its file; `None` if
    /// the file still exists.
    ///
    /// # Errors
    /// As [`Socket::bind`].
    pub(super) fn again(&self) -> io::Result<Option<Self>> {
        if self.is_there() { Ok(None) } else { Self::bind(&self.control).map(Some) }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Removes only our own file: another daemon may have created one at this path. After
        // privileges were dropped this may fail; then the next daemon finds the file and removes it
        // as stale.
        if self.is_there()
            && let Err(error) = fs::remove_file(self.path())
        {
            tracing::info!(
                "{} stays, until the next `srd up` removes it: {error}",
                self.path().display()
            );
        }
    }
}

fn make_directory(control: &Control) -> io::Result<()> {
    let Some(directory) = control.socket.parent() else { return Ok(()) };
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {
            // The directory is opened without following a link and changed through its descriptor.
            // If another user may change the directory above, the name could mean another file by
            // now.
            let made = OpenOptions::new().read(true).custom_flags(NO_LINK).open(directory)?;
            // The user that this process becomes has to remove its socket at the end.
            fchown(&made, srd_trust::privileges::own_user(), control.group.as_ref().map(|g| g.id))?;
            // The umask of this process may have cleared bits.
            made.set_permissions(Permissions::from_mode(DIRECTORY_MODE))
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes the socket of a daemon that has ended; refuses to remove any other file.
fn remove_stale(path: &Path) -> io::Result<()> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
        Ok(facts) if !facts.file_type().is_socket() => {
            let text = format!("{shown} is there and no socket; remove it or name another");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!("removing {shown}, left behind by a daemon that is gone");
            fs::remove_file(path)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(io::Error::new(e.kind(), format!("cannot tell whose {shown} is: {e}"))),
        Ok(_) => {
            let text = format!("a daemon serves {shown} already; stop it, or choose another name");
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
    }
}

/// The socket that a command uses: the given path, or the socket of the given interface. Without
/// both, the only socket that exists, or otherwise that of `srd0`.
///
/// # Errors
/// The names of the interfaces, if there are several and `srd0` is not among them.
pub fn find(interface: Option<&str>, socket: Option<&Path>) -> Result<PathBuf, Vec<String>> {
    let usual = socket_default(interface.unwrap_or("srd0"));
    match (socket, interface) {
        (Some(path), _) => Ok(path.to_path_buf()),
        (None, Some(_)) => Ok(usual),
        (None, None) => find_in(&usual),
    }
}

fn find_in(usual: &Path) -> Result<PathBuf, Vec<String>> {
    let entries = usual.parent().and_then(|directory| fs::read_dir(directory).ok());
    let files = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|e| e == "sock");
    let mut found: Vec<PathBuf> = files.filter(is_socket).collect();
    found.sort();
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Ok(usual.to_path_buf()),
        several if several.iter().any(|path| path == usual) => Ok(usual.to_path_buf()),
        several => {
            let stems = several.iter().filter_map(|path| path.file_stem());
            Err(stems.map(|stem| stem.to_string_lossy().into_owned()).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    fn control(path: PathBuf) -> Control {
        Control { socket: path, group: None }
    }

    #[test]
    fn socket_and_directory_are_for_owner_and_group_only_and_go_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/a.sock");
        let socket = Socket::bind(&control(path.clone())).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o660);
        assert_eq!(mode(path.parent().unwrap()), 0o750);
        drop(socket);
        assert!(!path.exists());
    }

    /// The user `srd` owns the directory and can do this while root starts a daemon there.
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
                let _ = Socket::bind(&control(path.clone()));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mode = fs::metadata(&target).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// Creates the stale socket file that a killed daemon leaves. Closing the socket would not be
    /// enough: if another test forks at this moment, the child process keeps the socket open until
    /// it calls `exec`. So the socket is shut down.
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
        let socket = Socket::bind(&control(path.clone())).unwrap();
        let error = Socket::bind(&control(path.clone())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("serves"), "{error}");
        drop(socket);
        fs::write(&path, "somebody's").unwrap();
        let error = Socket::bind(&control(path.clone())).unwrap_err();
        assert!(error.to_string().contains("no socket"), "{error}");
        assert!(path.exists());
    }

    #[test]
    fn a_successors_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let first = Socket::bind(&control(path.clone())).unwrap();
        fs::rename(&path, directory.path().join("moved.sock")).unwrap();
        let _second = Socket::bind(&control(path.clone())).unwrap();
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn the_only_socket_is_meant_unless_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let usual = at("srd0.sock");
        assert_eq!(find_in(&usual).unwrap(), usual);
        fs::write(at("srd7.sock"), "").unwrap();
        fs::write(at("srd7.pid"), "").unwrap();
        assert_eq!(find_in(&usual).unwrap(), at("srd7.sock"));
        fs::write(at("srd8.sock"), "").unwrap();
        assert_eq!(find_in(&usual).unwrap_err(), ["srd7", "srd8"]);
        fs::write(&usual, "").unwrap();
        assert_eq!(find_in(&usual).unwrap(), usual);
        assert_eq!(find(Some("a"), None).unwrap(), Path::new("/run/srd/a.sock"));
        assert_eq!(find(Some("a"), Some(Path::new("/x"))).unwrap(), Path::new("/x"));
    }
}
