//! Unix sockets that have their owner and mode before any process can connect.
//!
//! If a socket is bound at its final path, other users can connect until its mode is set. A user
//! that can change the directory could also replace the name by a link in this interval, and then
//! owner and mode of the link's target would be changed. So a socket is bound in a directory that
//! only this user can enter, gets its owner and mode there, and is moved to its final path.

use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, chmodat, chownat, fstat, mkdirat, openat,
    renameat_with, statat, unlinkat,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::geteuid;

use crate::{file_identity, peer};

/// Longest name in bytes under which a socket is bound directly. A socket with a longer name is
/// bound as [`SHORT`], and renamed when it is moved.
const NAME_BYTES_MAX: usize = 64;
/// Name of a socket in its private directory, if its final name is too long.
const SHORT: &str = "s";
/// Prefix of the names of private directories.
const OWN_PREFIX: &str = ".srd-";
/// Longest address of a Unix socket on Linux in bytes, without the zero at its end.
const ADDRESS_BYTES_MAX: usize = 107;

/// Options of a listening socket.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Mode bits of the socket.
    pub mode: u32,
    /// Group of the socket; `None`: the group of this process.
    pub group: Option<u32>,
    /// Whether the socket replaces an existing file. Otherwise an existing file is an error.
    pub replace: bool,
}

/// A listening socket, and the identity of its file.
#[derive(Debug)]
pub struct Bound {
    /// The listening socket.
    pub listener: UnixListener,
    /// Numbers of the device and of the inode of the socket's file.
    pub identity: (u64, u64),
}

/// Listens at a path. If the path is a link, the link is not followed. No process can connect
/// before the socket has its group and mode.
///
/// # Errors
/// [`ErrorKind::AddrInUse`] if the path exists and `replace` is false; otherwise an error of the
/// operating system, if the socket cannot be created at the path.
pub fn listen(path: &Path, options: Options) -> io::Result<Bound> {
    let (above, name) = open_directory(path)?;
    let own = Own::make(above.as_fd())?;
    let inner = if name.len() > NAME_BYTES_MAX { OsStr::new(SHORT) } else { name };
    let made = bind(&own.directory, inner, options).and_then(|bound| {
        let how = if options.replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(&own.directory, inner, &above, name, how) {
            Err(rustix::io::Errno::EXIST) => Err(ErrorKind::AddrInUse.into()),
            moved => moved.map(|()| bound).map_err(io::Error::from),
        }
    });
    let _ = unlinkat(&own.directory, inner, AtFlags::empty());
    made
}

/// Opens the directory of a socket, and returns it with the name of the socket. Later steps use the
/// descriptor: another user may put another directory at the path.
fn open_directory(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((rustix::fs::open(above, flags, Mode::empty())?, name))
}

/// Returns a path that leads to an open directory, wherever the directory is.
fn by_descriptor(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Binds a socket in a directory that only this user can enter.
fn bind(directory: &OwnedFd, name: &OsStr, options: Options) -> io::Result<Bound> {
    let listener = UnixListener::bind(address(directory, name))?;
    if let Some(group) = options.group {
        let group = Some(Gid::from_raw(group));
        chownat(directory, name, None, group, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    chmodat(directory, name, Mode::from_raw_mode(options.mode), AtFlags::empty())?;
    let facts = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(Bound { listener, identity: (facts.st_dev, facts.st_ino) })
}

/// Returns the address to which a socket in a directory is bound: it contains the path of the
/// directory, if the path is short enough. The kernel shows this address for the life of the
/// socket, and [`place_of`] computes the final path from it. If another user replaces the directory
/// at the same time, the next steps find no file of this name, because they use the descriptor of
/// the directory.
fn address(directory: &OwnedFd, name: &OsStr) -> PathBuf {
    let by_descriptor = by_descriptor(directory);
    let by_name = fs::read_link(&by_descriptor).map(|place| place.join(name));
    let is_short = |path: &PathBuf| path.as_os_str().len() <= ADDRESS_BYTES_MAX;
    by_name.ok().filter(is_short).unwrap_or_else(|| by_descriptor.join(name))
}

/// Returns the path of a socket that [`listen`] has created, from the address that the kernel
/// shows; `None` if the address does not contain the path.
pub fn place_of(address: &Path) -> Option<PathBuf> {
    let name = address.file_name()?;
    let own = address.parent()?;
    let is_own = own.file_name()?.to_str()?.starts_with(OWN_PREFIX);
    (is_own && name != SHORT).then(|| own.parent().map(|above| above.join(name)))?
}

/// Connects without blocking. A socket whose queue is full is treated like a socket without a
/// listener, since another user may have filled the queue to block this process.
///
/// # Errors
/// An error of the operating system, if no connection can be made immediately.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Returns the process that listens at a socket as an insertion into a message, such as
/// ` (process 7)`. The text is empty if no connection can be made immediately, or the process that
/// began to listen is not known, or has ended and left the socket to another one.
pub fn listener_inserted(path: &Path) -> String {
    connect(path).map(|stream| peer::inserted(&stream)).unwrap_or_default()
}

/// Whether a path leads to a socket at which no process listens, as a killed process leaves it.
/// Returns false if there is no file.
///
/// # Errors
/// - [`ErrorKind::AlreadyExists`]: the file is not a socket.
/// - [`ErrorKind::AddrInUse`]: a process listens at the socket, or the socket is of another type.
/// - An error of the operating system, if the state of the socket cannot be determined.
pub fn is_dead(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => return Err(ErrorKind::AlreadyExists.into()),
        Ok(_) => {}
    }
    let another = rustix::io::Errno::PROTOTYPE.raw_os_error();
    match connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        // If a process listens and its queue is full, the error is `WouldBlock`.
        Err(error)
            if error.kind() != ErrorKind::WouldBlock && error.raw_os_error() != Some(another) =>
        {
            Err(error)
        }
        _ => Err(ErrorKind::AddrInUse.into()),
    }
}

/// Removes the file of a socket for which [`is_dead`] returns true. Returns whether it has
/// removed one. If the socket at the path, or its directory, is replaced at the same time, the new
/// one remains as it is.
///
/// # Errors
/// The errors of [`is_dead`], or an error of the operating system, if the file cannot be removed.
pub fn remove_dead(path: &Path) -> io::Result<bool> {
    match open_directory(path) {
        Ok((directory, name)) => remove_dead_in(&directory, name),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn remove_dead_in(directory: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let path = by_descriptor(directory).join(name);
    let was = file_identity::identity(&path);
    if !is_dead(&path)? {
        return Ok(false);
    }
    was.map_or(Ok(()), |was| file_identity::remove(&path, was))?;
    Ok(true)
}

/// A private directory of this user, next to the socket. It is removed when this value is dropped.
struct Own<'a> {
    above: BorrowedFd<'a>,
    name: String,
    directory: OwnedFd,
}

impl<'a> Own<'a> {
    fn make(above: BorrowedFd<'a>) -> io::Result<Self> {
        // Another process with the same process number, in another container, may create such a
        // directory, too.
        let name = format!("{OWN_PREFIX}{:016x}", RandomState::new().build_hasher().finish());
        mkdirat(above, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let own = Self { above, directory: openat(above, &name, flags, Mode::empty())?, name };
        // A user that can change the directory above may have replaced the new directory.
        let facts = fstat(&own.directory)?;
        if facts.st_uid != geteuid().as_raw() || facts.st_mode & 0o077 != 0 {
            let what = format!("another program has exchanged the directory {}", own.name);
            return Err(io::Error::new(ErrorKind::PermissionDenied, what));
        }
        Ok(own)
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        let _ = unlinkat(self.above, &self.name, AtFlags::REMOVEDIR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixDatagram;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    const OPTIONS: Options = Options { mode: 0o660, group: None, replace: false };

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn regression_a_full_queue_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full.sock");
        let flags = SocketFlags::CLOEXEC;
        let full = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&full, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let first = connect(&path).unwrap();
        // If the call waits, the test fails after a time limit, and does not wait as well.
        let (sender, receiver) = channel();
        thread::spawn(move || sender.send(connect(&path).map(drop)));
        let second = receiver.recv_timeout(Duration::from_secs(60)).expect("the call waits");
        assert_eq!(second.unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(first);
    }

    /// A socket without a listener is removed. A socket with a listener, also one with a full
    /// queue, a socket of another type, a link and another file remain.
    #[test]
    fn only_dead_sockets_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let kind = |name: &str| remove_dead(&path(name)).unwrap_err().kind();
        assert!(!remove_dead(&path("absent")).unwrap());
        let dead = UnixListener::bind(path("dead")).unwrap();
        rustix::net::shutdown(&dead, rustix::net::Shutdown::Both).unwrap();
        symlink(path("dead"), path("link")).unwrap();
        assert_eq!(kind("link"), ErrorKind::AlreadyExists);
        assert!(is_dead(&path("dead")).unwrap() && path("dead").exists());
        assert!(remove_dead(&path("dead")).unwrap());
        assert!(!path("dead").exists());
        fs::write(path("file"), "precious").unwrap();
        assert_eq!(kind("file"), ErrorKind::AlreadyExists);
        let lives = UnixListener::bind(path("lives")).unwrap();
        assert_eq!(kind("lives"), ErrorKind::AddrInUse);
        rustix::net::listen(&lives, 0).unwrap();
        let _queued: Vec<_> = std::iter::from_fn(|| connect(&path("lives")).ok()).collect();
        assert_eq!(kind("lives"), ErrorKind::AddrInUse, "the queue is full");
        let _datagrams = UnixDatagram::bind(path("datagrams")).unwrap();
        assert_eq!(kind("datagrams"), ErrorKind::AddrInUse);
        assert!(["file", "lives", "datagrams"].iter().all(|name| path(name).exists()));
    }

    #[test]
    fn the_process_that_listens_is_named_if_a_connection_can_be_made() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        assert_eq!(listener_inserted(&path), "");
        let lives = UnixListener::bind(&path).unwrap();
        assert_eq!(listener_inserted(&path), format!(" (process {})", std::process::id()));
        rustix::net::listen(&lives, 0).unwrap();
        let _queued: Vec<_> = std::iter::from_fn(|| connect(&path).ok()).collect();
        assert_eq!(listener_inserted(&path), "", "the queue is full");
    }

    /// The directory was found by its path in each step, so a user that could exchange it could
    /// have a file of another directory moved.
    #[test]
    fn regression_a_directory_that_is_exchanged_meanwhile_keeps_its_socket() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let leave_dead = || {
            fs::create_dir(at("run")).unwrap();
            let dead = UnixListener::bind(at("run/a.sock")).unwrap();
            rustix::net::shutdown(&dead, rustix::net::Shutdown::Both).unwrap();
        };
        leave_dead();
        let path = at("run/a.sock");
        let (opened, name) = open_directory(&path).unwrap();
        fs::rename(at("run"), at("away")).unwrap();
        leave_dead();
        assert!(remove_dead_in(&opened, name).unwrap());
        assert!(path.exists() && !at("away/a.sock").exists());
        assert!(remove_dead(&path).unwrap() && !path.exists());
        assert!(!remove_dead(&at("absent/a.sock")).unwrap());
    }

    #[test]
    fn a_socket_has_its_mode_and_can_be_reached_and_nothing_is_left_beside() {
        let directory = tempfile::tempdir().unwrap();
        let long = "x".repeat(107 - directory.path().as_os_str().len() - 1);
        for name in ["a.sock", &long] {
            let path = directory.path().join(name);
            let bound = listen(&path, OPTIONS).unwrap();
            assert_eq!(mode(&path), 0o660);
            let address = bound.listener.local_addr().unwrap();
            let is_long = name.len() > NAME_BYTES_MAX;
            let place = place_of(address.as_pathname().unwrap());
            assert_eq!(place, (!is_long).then(|| path.canonicalize().unwrap()));
            let facts = fs::symlink_metadata(&path).unwrap();
            assert_eq!(bound.identity, (facts.dev(), facts.ino()));
            UnixStream::connect(&path).unwrap();
            let error = listen(&path, OPTIONS).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
            let other = listen(&path, Options { replace: true, ..OPTIONS }).unwrap();
            assert_ne!(other.identity, bound.identity);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_link_at_the_place_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, target) = (directory.path().join("a.sock"), directory.path().join("target"));
        fs::write(&target, "precious").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&target, &path).unwrap();
        assert_eq!(listen(&path, OPTIONS).unwrap_err().kind(), ErrorKind::AddrInUse);
        listen(&path, Options { replace: true, ..OPTIONS }).unwrap();
        assert_eq!(
            (mode(&target), fs::read_to_string(&target).unwrap().as_str()),
            (0o600, "precious")
        );
    }

    /// Simulates an attack: a user that owns the directory replaces each name in it by a link.
    #[test]
    fn regression_names_that_are_exchanged_meanwhile_change_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let (at, target) = (directory.path().join("run"), directory.path().join("target"));
        fs::create_dir(&at).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(target.join("a.sock"), "precious").unwrap();
        let modes = [(target.clone(), 0o700), (target.join("a.sock"), 0o600)];
        for (path, mode) in &modes {
            fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
        }
        let (link, path) = (at.join("link"), at.join("a.sock"));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for entry in fs::read_dir(&at).unwrap().flatten() {
                        let is_directory = entry.file_type().is_ok_and(|of| of.is_dir());
                        let to = if is_directory { target.clone() } else { target.join("a.sock") };
                        let _ = symlink(to, &link);
                        let _ = fs::rename(entry.path(), at.join("away"));
                        let _ = fs::rename(&link, entry.path());
                    }
                }
            });
            for _ in 0..500 {
                let _ = listen(&path, OPTIONS);
                let _ = listen(&path, Options { replace: true, ..OPTIONS });
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for (path, wanted) in &modes {
            assert_eq!(mode(path), *wanted, "{}", path.display());
        }
        assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(target.join("a.sock")).unwrap(), "precious");
    }
}
