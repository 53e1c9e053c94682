//! Directories in which the endpoints of a user listen, and the names of their sockets.
//!
//! Only the user can enter such a directory, so the kernel refuses the connections of all other
//! users. If a connection of another user were accepted, it could carry descriptors, and closing
//! these may block.
//!
//! All processes of a user have to find the same directory, so its path depends only on the user.
//! Another user may have created a directory at this path in `/tmp`. Then the runtime directory of
//! the user is used instead, which exists only while the user is logged in.
//!
//! A process that is killed leaves the names of its sockets. Each endpoint that starts removes such
//! names, also those of other addresses ([`Directory::sweep`]). The work of one start is bounded by
//! [`NAMES_MAX`], [`LOOKS_MAX`] and [`CHECKS_MAX`].

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, fstat, mkdir, open, stat, unlinkat,
    utimensat,
};
use rustix::net::SocketAddrUnix;
use rustix::process::geteuid;
use srd_trust::file_identity;

/// Prefix of the names of all versions.
const PREFIX: &str = "srd-near-";
/// Smallest age of a name that is checked. A process that starts has bound its name before it
/// listens, and a name whose process lives is checked only once in this time.
const AGE_MIN: Duration = Duration::from_secs(60);
/// Maximum number of names that one start reads.
const NAMES_MAX: usize = 65_536;
/// Maximum number of names whose age one start reads.
const LOOKS_MAX: usize = 4096;
/// Maximum number of names that one start checks by a connection.
const CHECKS_MAX: usize = 64;

/// Descriptor of a directory that only this user can enter.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

impl Directory {
    /// Returns the usable directories of this user, in the order in which endpoints choose them.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let user = geteuid().as_raw();
        let paths = [format!("/tmp/srd-{user}"), format!("/run/user/{user}/srd")];
        paths.into_iter().filter_map(|path| Self::open(Path::new(&path)).ok())
    }

    /// Opens a directory; creates it, if it does not exist.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if it belongs to another user, or if another user can
    /// enter it; otherwise an error of the operating system. A link is not followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match mkdir(path, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        let found = fstat(&directory)?;
        if found.st_uid != geteuid().as_raw() || found.st_mode & 0o077 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self(directory))
    }

    /// Returns the address of the socket with this name. It contains the descriptor instead of the
    /// path, so that the directory is the same that was checked.
    pub(super) fn address(&self, name: &str) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))?)
    }

    /// Removes a name. A name that does not exist is no error.
    pub(super) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.0, name, AtFlags::empty());
    }

    /// Removes names at which no process listens any more. `is_dead` returns whether this is so at
    /// an address; it connects to the socket. If there are more names than one call examines, each
    /// call begins at a random one.
    ///
    /// # Errors
    /// An error of the operating system, if the directory cannot be read.
    pub(super) fn sweep(
        &self,
        is_dead: impl Fn(&SocketAddrUnix) -> io::Result<bool>,
    ) -> io::Result<()> {
        let place = PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        let names = fs::read_dir(&place)?.take(NAMES_MAX).flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
        let random = RandomState::new().build_hasher().finish();
        let first = random % (names.len() as u64).max(1);
        names.rotate_left(usize::try_from(first).unwrap_or(0));
        let now = SystemTime::now();
        let is_old = |name: &&String| {
            let facts = fs::symlink_metadata(place.join(name));
            let facts = facts.ok().filter(|facts| facts.file_type().is_socket());
            let changed = facts.and_then(|facts| facts.modified().ok());
            let age = changed.and_then(|at| now.duration_since(at).ok());
            age.is_some_and(|age| age >= AGE_MIN)
        };
        for name in names.iter().take(LOOKS_MAX).filter(is_old).take(CHECKS_MAX) {
            let path = place.join(name);
            let Some(was) = file_identity::identity(&path) else { continue };
            let Ok(address) = self.address(name) else { continue };
            match is_dead(&address) {
                // If the name belongs to another socket by now, it stays.
                Ok(true) => drop(file_identity::remove(&path, was)),
                Ok(false) => self.set_time(name, Timespec { tv_sec: 0, tv_nsec: UTIME_NOW }),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sets the time from which the age of a name counts.
    fn set_time(&self, name: &str, at: Timespec) {
        let times = Timestamps { last_access: at, last_modification: at };
        let _ = utimensat(&self.0, name, &times, AtFlags::SYMLINK_NOFOLLOW);
    }

    /// Makes a name as old as a name has to be before it is checked.
    #[cfg(test)]
    pub(super) fn age(&self, name: &str) {
        let long_ago = SystemTime::now() - 2 * AGE_MIN;
        let at = long_ago.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = Timespec { tv_sec: at.as_secs().cast_signed(), tv_nsec: 0 };
        self.set_time(name, at);
    }
}

/// Returns the name of the socket of the endpoint with this address, in the network namespace of
/// the calling thread. `version`: the version of the memory layout.
///
/// # Errors
/// An error of the operating system, if the network namespace cannot be determined.
pub(super) fn name(version: &str, of: SocketAddr) -> io::Result<String> {
    let namespace = stat("/proc/thread-self/ns/net")?.st_ino;
    Ok(format!("{version}-{namespace}-{of}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

    #[test]
    fn a_directory_that_another_user_can_enter_or_has_made_is_refused() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("d");
        let directory = Directory::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(Directory::open(&path).is_ok(), "it exists already");
        drop(directory);
        for mode in [0o701, 0o710, 0o777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Directory::open(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&path, above.path().join("link")).unwrap();
        assert!(Directory::open(&above.path().join("link")).is_err());
        fs::write(above.path().join("file"), "").unwrap();
        assert!(Directory::open(&above.path().join("file")).is_err());
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let error = Directory::open(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }

    /// Creates a directory, with the path of each name in it.
    fn made() -> (tempfile::TempDir, Directory, impl Fn(&str) -> PathBuf) {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("d");
        let directory = Directory::open(&path).unwrap();
        (above, directory, move |name: &str| path.join(name))
    }

    fn refuses(address: &SocketAddrUnix) -> io::Result<bool> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok(connect(&socket, address) == Err(rustix::io::Errno::CONNREFUSED))
    }

    #[test]
    fn old_names_of_dead_processes_are_removed_and_no_other_ones() {
        let (_above, directory, path) = made();
        let listen = |name: &str| UnixListener::bind(path(name)).unwrap();
        for name in ["srd-near-1-dead", "srd-near-2-fresh", "other-dead"] {
            // If another test starts a process at this moment, that process has the socket as well.
            rustix::net::shutdown(listen(name), rustix::net::Shutdown::Both).unwrap();
        }
        let _lives = listen("srd-near-2-lives");
        fs::write(path("srd-near-2-file"), "").unwrap();
        for name in ["srd-near-1-dead", "other-dead", "srd-near-2-lives", "srd-near-2-file"] {
            directory.age(name);
        }
        directory.sweep(refuses).unwrap();
        let left = |name: &str| path(name).exists();
        assert!(!left("srd-near-1-dead"));
        for name in ["srd-near-2-fresh", "other-dead", "srd-near-2-lives", "srd-near-2-file"] {
            assert!(left(name), "{name}");
        }
        // The living process is not checked again at once.
        directory.sweep(|_| panic!("it is checked again")).unwrap();
    }

    #[test]
    fn a_sweep_checks_so_many_names_and_the_next_one_goes_on() {
        let (_above, directory, path) = made();
        for number in 0..CHECKS_MAX + 10 {
            let name = format!("srd-near-2-{number}");
            drop(UnixListener::bind(path(&name)).unwrap());
            directory.age(&name);
        }
        let count = || fs::read_dir(path("")).unwrap().count();
        directory.sweep(|_| Ok(true)).unwrap();
        assert_eq!(count(), 10);
        directory.sweep(|_| Ok(true)).unwrap();
        assert_eq!(count(), 0);
    }

    #[test]
    fn a_name_fits_into_an_address() {
        let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".parse().unwrap();
        let name = name("srd-near-2", longest).unwrap();
        let above = tempfile::tempdir().unwrap();
        let directory = Directory::open(&above.path().join("d")).unwrap();
        assert!(!name.contains('/') && directory.address(&name).is_ok(), "{name}");
    }
}
