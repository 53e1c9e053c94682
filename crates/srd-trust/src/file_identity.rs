//! Removal of a file by its identity: another process may have made a file of its own under the
//! same name.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Device and inode of a file, and its creation time in nanoseconds: a file system reuses the inode
/// of a removed file.
pub type Identity = (u64, u64, u64);

/// Returns the identity of the file with this name; `None` if there is no such file.
pub fn identity(path: &Path) -> Option<Identity> {
    let facts = fs::symlink_metadata(path).ok()?;
    let made = facts.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let made_ns = made.map_or(0, |at| u64::try_from(at.as_nanos()).unwrap_or(0));
    Some((facts.dev(), facts.ino(), made_ns))
}

/// Removes a file, unless its name belongs to another file. The file is first moved to a name that
/// only this process uses: between the check and the removal another process may replace it.
///
/// # Errors
/// An error of the operating system, if the file cannot be moved.
pub fn remove(path: &Path, was: Identity) -> io::Result<()> {
    if identity(path) != Some(was) {
        return Ok(());
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = Path::new(&aside);
    match fs::rename(path, aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        moved => {
            moved?;
            settle(path, aside, was);
        }
    }
    Ok(())
}

/// Removes the file that was moved aside, or restores its name if it is another file.
fn settle(path: &Path, aside: &Path, was: Identity) {
    let is_another = identity(aside) != Some(was);
    if is_another && renameat_with(CWD, aside, CWD, path, RenameFlags::NOREPLACE).is_ok() {
        return;
    }
    let _ = fs::remove_file(aside);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_file_of_that_identity_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let [path, aside] = ["card.sock", "card.sock.7"].map(|name| directory.path().join(name));
        fs::write(&path, "first").unwrap();
        let first = identity(&path).unwrap();
        remove(&path, (first.0, first.1, first.2 + 1)).unwrap();
        assert!(path.exists());
        remove(&path, first).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        // Another file took the name between the check and the move.
        fs::write(&aside, "another").unwrap();
        settle(&path, &aside, first);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
        // A third file took the name meanwhile.
        fs::write(&aside, "another").unwrap();
        fs::write(&path, "third").unwrap();
        settle(&path, &aside, first);
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
        assert!(!aside.exists());
    }
}
