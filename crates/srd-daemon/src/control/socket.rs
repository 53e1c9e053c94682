//! The file of the control socket: made with the right owner, group and mode, told from one that
//! a daemon left behind, and found by interface.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::config::{Control, socket_default};

/// Owner and group may look for the socket.
const DIRECTORY_MODE: u32 = 0o750;
/// Owner and group may use it.
const SOCKET_MODE: u32 = 0o660;

/// A control socket that listens, and is removed when it is dropped.
#[derive(Debug)]
pub struct Socket {
    pub(super) listener: UnixListener,
    control: Control,
    /// Whose file it is: device and inode.
    identity: (u64, u64),
}

impl Socket {
    /// Makes the socket. Call it while privileges are there: it may have to make its directory,
    /// and to give both to a group.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if a daemon serves this socket already; otherwise the
    /// system's. Both with words for a person.
    pub fn bind(control: &Control) -> io::Result<Self> {
        let path = &control.socket;
        let because = |what: &str, e: &io::Error| {
            io::Error::new(e.kind(), format!("{what} {}: {e}", path.display()))
        };
        make_directory(control).map_err(|e| because("cannot make the directory of", &e))?;
        remove_stale(path)?;
        let listener =
            UnixListener::bind(path).map_err(|e| because("cannot make the control socket", &e))?;
        let facts = fs::symlink_metadata(path)?;
        let identity = (facts.dev(), facts.ino());
        let socket = Self { listener, control: control.clone(), identity };
        if let Some(group) = &control.group {
            let what = format!("cannot give to group {} the socket", group.name);
            chown(path, None, Some(group.id)).map_err(|e| because(&what, &e))?;
        }
        fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))
            .map_err(|e| because("cannot set the mode of", &e))?;
        Ok(socket)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.control.socket
    }

    /// Whether its file is there, so that commands find it.
    fn is_there(&self) -> bool {
        let is_ours = |facts: fs::Metadata| (facts.dev(), facts.ino()) == self.identity;
        fs::symlink_metadata(self.path()).is_ok_and(is_ours)
    }

    /// Another socket in the place of this one, if something has removed its file; none if it is
    /// there.
    ///
    /// # Errors
    /// As [`Socket::bind`].
    pub(super) fn again(&self) -> io::Result<Option<Self>> {
        if self.is_there() { Ok(None) } else { Self::bind(&self.control).map(Some) }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Only our own: another daemon may have taken the place. After privileges were dropped
        // this may fail, and the next daemon finds it stale.
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
    match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Ok(()) => {
            // Whatever the mask of this process took away.
            fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))?;
            // The user that this process becomes has to remove its socket at the end.
            chown(directory, crate::privileges::own_user(), None)?;
            control.group.as_ref().map_or(Ok(()), |g| chown(directory, None, Some(g.id)))
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes what a daemon that died has left; refuses what is not ours to remove.
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

/// The socket that a command means: the one it names, that of the interface it names, that of
/// `srd0`, or the only one there is.
///
/// # Errors
/// There are several and none is `srd0`'s: their interfaces.
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

    /// Leaves what a daemon that died leaves. Closing the socket is not enough: a process that
    /// another test starts at this moment shares it until it becomes its program.
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
