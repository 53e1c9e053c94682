//! Cards of earlier versions: their socket and their locks were in a directory that the user of
//! `srd up` can change as well. A running card of such a version is found, and the files of ended
//! ones are removed.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
pub(crate) use srd_daemon::control::socket::CARD_EARLIER as SOCKET;
use srd_trust::peer;
use srd_trust::socket::connect;

/// Directory of the locks of a card of an earlier version.
const LOCKS: &str = "/run/srd/locks";
/// Flags to open an untrusted lock file.
const FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK);

/// Returns a connection to a running card of an earlier version, if there is one and its socket
/// belongs to root.
pub(crate) fn card() -> Option<UnixStream> {
    card_at(Path::new(SOCKET))
}

fn card_at(socket: &Path) -> Option<UnixStream> {
    is_socket(socket).then_some(())?;
    let stream = connect(socket).ok()?;
    peer::check(&stream).is_ok().then_some(stream)
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|of| of.file_type().is_socket())
}

/// Whether a card of an earlier version holds the lock of the namespace with this name.
pub(crate) fn has_lock(name: &str) -> bool {
    is_held(&Path::new(LOCKS).join(name))
}

/// Whether a process holds a lock on a file of this process's user, which is root.
fn is_held(path: &Path) -> bool {
    let open = OpenOptions::new().read(true).custom_flags(FLAGS.bits().cast_signed()).open(path);
    let is_ours = |file: &File| {
        let own = rustix::process::geteuid().as_raw();
        file.metadata().is_ok_and(|of| of.is_file() && of.uid() == own)
    };
    let file = open.ok().filter(is_ours);
    file.is_some_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Removes the files of ended cards of earlier versions.
pub(crate) fn clean() {
    clean_in(Path::new(SOCKET), Path::new(LOCKS));
}

fn clean_in(socket: &Path, locks: &Path) {
    let _ = srd_trust::socket::remove_dead(socket);
    let mut entries = fs::read_dir(locks).into_iter().flatten().flatten();
    if entries.any(|entry| is_held(&entry.path())) {
        tracing::warn!(
            "{} is of an earlier version, of which a card still runs: the directory can be removed \
             when that card has ended",
            locks.display()
        );
        return;
    }
    // No symbolic link is followed, and the files here belong to no running process.
    match fs::remove_dir_all(locks) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!("{} is of an earlier version, and stays: {error}", locks.display());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::locks::{self, Lock};
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_an_earlier_card_has_is_left_and_what_it_has_left_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let [socket, at] = ["card.sock", "locks"].map(|name| directory.path().join(name));
        clean_in(&socket, &at);
        locks::make(&at).unwrap();
        let lock = Lock::take(&at, "srd-i-web").unwrap().unwrap();
        fs::write(at.join("srd-i-app"), "").unwrap();
        let card = UnixListener::bind(&socket).unwrap();
        assert!(is_held(&at.join("srd-i-web")) && !is_held(&at.join("srd-i-app")));
        assert!(!is_held(&at.join("srd-i-none")) && card_at(&socket).is_some());
        clean_in(&socket, &at);
        assert!(socket.exists() && at.join("srd-i-web").exists());
        // The kernel closes a socket in this way at the end of its process.
        rustix::net::shutdown(&card, rustix::net::Shutdown::Both).unwrap();
        drop(lock);
        clean_in(&socket, &at);
        assert!(!socket.exists() && !at.exists());
    }

    #[test]
    fn a_link_in_the_place_of_the_locks_loses_nothing_but_itself() {
        let directory = tempfile::tempdir().unwrap();
        let [socket, at, other] = ["s", "locks", "other"].map(|name| directory.path().join(name));
        fs::create_dir(&other).unwrap();
        fs::write(other.join("srd-i-web"), "precious").unwrap();
        std::os::unix::fs::symlink(&other, &at).unwrap();
        clean_in(&socket, &at);
        assert_eq!(fs::read_to_string(other.join("srd-i-web")).unwrap(), "precious");
    }
}
