//! Files for data that only their owner may read: secrets of keys, captured packets.
//!
//! A user who owns a file reads what root writes to it, and a user who may change a directory
//! replaces its files. So the file and its directory must belong to root, to the user of this
//! process, or to the user who has started it by `sudo`.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::process::geteuid;
use srd_trust::privileges;

/// Mode bit with which every user may change a directory.
const OTHERS_WRITE: u32 = 0o002;
/// Mode bit of a directory in which only the owner of a file can rename or remove it.
const STICKY: u32 = 0o1000;

/// Opens a file for data that only its owner may read: creates it, or empties it. A file that was
/// there gets the mode 600. A device or a pipe keeps its mode.
///
/// # Errors
/// An error of the operating system, if the file cannot be written. An error of the kind
/// [`ErrorKind::PermissionDenied`], if the file, a link to it or its directory belongs to another
/// user, or every user may change the directory.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    check_directory(path)?;
    let mut options = OpenOptions::new();
    options.write(true).truncate(false).mode(0o600);
    match fs::symlink_metadata(path) {
        // In a directory such as `/tmp`, another user may create a link at this moment.
        Err(error) if error.kind() == ErrorKind::NotFound => options.create_new(true),
        facts => {
            check_owner("it", &facts?)?;
            // To open a pipe of another user could wait without end.
            if let Ok(target) = fs::metadata(path) {
                check_owner("it", &target)?;
            }
            options.create(true)
        }
    };
    let file = options.open(path)?;
    let facts = file.metadata()?;
    check_owner("it", &facts)?;
    if facts.is_file() {
        if facts.mode() & 0o077 != 0 {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        file.set_len(0)?;
    }
    Ok(file)
}

/// Writes a text to a file that only its owner may read: see [`create_private`]. After success, the
/// text is on the disk.
///
/// # Errors
/// The errors of [`create_private`], or an error of the operating system, if the disk is full.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = create_private(path)?;
    file.write_all(text.as_bytes())?;
    // Some file systems report a full disk only here. A pipe or a device has no such call.
    if file.metadata()?.is_file() {
        file.sync_all()?;
    }
    Ok(())
}

fn check_directory(file: &Path) -> io::Result<()> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let facts = fs::metadata(directory)?;
    check_owner("its directory", &facts)?;
    let mode = facts.mode() & 0o7777;
    if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        return Err(denied(format!(
            "every user may change its directory (mode {mode:04o}): name a file in another one"
        )));
    }
    Ok(())
}

/// Checks that a file or a directory belongs to a user who may read the data. Only root makes
/// devices, and a terminal belongs to the user at it.
fn check_owner(what: &str, facts: &Metadata) -> io::Result<()> {
    let (user, kind) = (facts.uid(), facts.file_type());
    let is_device = kind.is_char_device() || kind.is_block_device();
    let is_ours = user == 0 || user == geteuid().as_raw() || privileges::sudo_user() == Some(user);
    if is_device || is_ours {
        return Ok(());
    }
    Err(denied(format!(
        "{what} belongs to user {user}, who could read the data: name another file"
    )))
}

fn denied(what: String) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, lchown, symlink};

    const OTHER: Option<u32> = Some(65_534);

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[track_caller]
    fn refused(path: &Path) -> String {
        let error = create_private(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        error.to_string()
    }

    #[test]
    fn a_file_gets_its_mode_and_is_emptied_and_an_own_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("a"), directory.path().join("link"));
        symlink(&path, &link).unwrap();
        for file in [&link, &path, &link] {
            write_private(file, "text").unwrap();
            assert_eq!((mode(&path), fs::read_to_string(&path).unwrap().as_str()), (0o600, "text"));
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        }
        create_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        write_private(Path::new("/dev/null"), "text").unwrap();
        let full = write_private(Path::new("/dev/full"), "text").unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }

    /// Root wrote a secret to a file, and a directory, of another user.
    #[test]
    fn regression_a_file_or_a_directory_of_another_user_gets_no_private_data() {
        let directory = tempfile::tempdir().unwrap();
        let within = directory.path().join("in");
        fs::create_dir(&within).unwrap();
        let path = within.join("a");
        fs::set_permissions(&within, Permissions::from_mode(0o777)).unwrap();
        assert!(refused(&path).contains("mode 0777") && !path.exists());
        fs::set_permissions(&within, Permissions::from_mode(0o1777)).unwrap();
        create_private(&path).unwrap();
        if !geteuid().is_root() {
            println!("skipped: only root gives files away");
            return;
        }
        fs::write(&path, "of another user").unwrap();
        chown(&path, OTHER, None).unwrap();
        assert!(refused(&path).contains("user 65534"));
        let (link, own) = (within.join("link"), within.join("own"));
        fs::write(&own, "precious").unwrap();
        symlink(&own, &link).unwrap();
        lchown(&link, OTHER, None).unwrap();
        assert!(refused(&link).contains("user 65534"));
        assert_eq!(fs::read_to_string(&own).unwrap(), "precious");
        // To open this pipe would wait for a reader.
        let pipe = within.join("pipe");
        let fifo = rustix::fs::FileType::Fifo;
        let rw = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, rw, 0).unwrap();
        chown(&pipe, OTHER, None).unwrap();
        assert!(refused(&pipe).contains("user 65534"));
        chown(&within, OTHER, None).unwrap();
        assert!(refused(&within.join("new")).contains("its directory belongs"));
    }
}
