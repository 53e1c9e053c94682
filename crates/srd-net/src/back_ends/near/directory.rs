//! Directories in which the endpoints of a user listen, and the names of their sockets.
//!
//! Only the user can enter such a directory, so the kernel refuses the connections of all other
//! users. If a connection of another user were accepted, it could carry descriptors, and closing
//! these may block.
//!
//! All processes of a user have to find the same directory, so its path depends only on the user.
//! Another user may have created a directory at this path in `/tmp`. Then the runtime directory of
//! the user is used instead, which exists only while the user is logged in.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstat, mkdir, open, stat};
use rustix::net::SocketAddrUnix;
use rustix::process::geteuid;

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
        let _ = rustix::fs::unlinkat(&self.0, name, rustix::fs::AtFlags::empty());
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
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

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

    #[test]
    fn a_name_fits_into_an_address() {
        let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".parse().unwrap();
        let name = name("srd-near-2", longest).unwrap();
        let above = tempfile::tempdir().unwrap();
        let directory = Directory::open(&above.path().join("d")).unwrap();
        assert!(!name.contains('/') && directory.address(&name).is_ok(), "{name}");
    }
}
