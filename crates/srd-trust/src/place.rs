//! Directories and files that only root can change, including all directories above them. A user
//! that can change one of these directories can put another file, or a link, in place of a file
//! that root has created or is about to open.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;

/// Largest number of links that are followed in a path; the kernel has the same limit.
const LINKS_MAX: u32 = 40;
/// Mode bits that let users other than the owner write.
const OTHERS_WRITE: u32 = 0o022;
/// Mode bit of a directory in which only the owner of a file can rename or remove it.
const STICKY: u32 = 0o1000;

/// Error: another user can change the path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exposed {
    /// The directory or file in the path that another user can change.
    pub at: PathBuf,
    /// The owner or mode that permits the change, as text.
    pub why: String,
}

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "others than root may change {}: {}", self.at.display(), self.why)
    }
}

impl std::error::Error for Exposed {}

/// Checks that a path can be trusted: the file and each directory above it must belong to root or
/// to this process's user, and only the owner may be able to write to it. A sticky directory such
/// as `/tmp` may be writable by others. A name that does not exist yet can be created by every user
/// that can write to the directory above it. In `/tmp` these are all users, so a caller that
/// creates a file there has to check again afterwards.
///
/// # Errors
/// An error of the operating system, if the path cannot be read. An error about an [`Exposed`] path
/// has the kind [`PermissionDenied`](io::ErrorKind::PermissionDenied).
pub fn check(path: &Path) -> io::Result<()> {
    let own = geteuid().as_raw();
    walk(path, |at, facts| {
        let owner = facts.uid();
        if owner != 0 && owner != own {
            return Err(format!("it belongs to user {owner}"));
        }
        open_mode(at, facts).map_or(Ok(()), Err)
    })
}

/// Returns the mode of a directory or file that lets users other than the owner change it, as text
/// with the remedy; `None` for any other mode. In a sticky directory only the owner of a file can
/// replace the file.
pub fn open_mode(at: &Path, facts: &Metadata) -> Option<String> {
    let (mode, is_link) = (facts.mode() & 0o7777, facts.file_type().is_symlink());
    let is_kept = facts.is_dir() && mode & STICKY != 0;
    let is_open = mode & OTHERS_WRITE != 0 && !is_link && !is_kept;
    is_open.then(|| format!("its mode is {mode:04o} (chmod go-w {})", at.display()))
}

/// Whether only root or this process's user can change the file that a path refers to: see
/// [`check`].
pub fn is_roots_alone(path: &Path) -> bool {
    check(path).is_ok()
}

/// Creates a directory with this mode, unless it exists, and all missing directories above it, with
/// the mode 0755. The directory and those above it must satisfy [`check`].
///
/// # Errors
/// The errors of [`check`], or an error of the operating system, if a directory cannot be created.
pub fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    check(path)?;
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        // The umask of this process may have removed bits of the mode.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode))?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    check(path)
}

/// Follows a path from the root directory, link by link, and calls `look` for each existing
/// directory, link and file.
fn walk(path: &Path, look: impl Fn(&Path, &Metadata) -> Result<(), String>) -> io::Result<()> {
    let mut ahead: VecDeque<OsString> = names(&std::path::absolute(path)?);
    let mut here = PathBuf::from("/");
    let mut links = 0;
    loop {
        let facts = match fs::symlink_metadata(&here) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            facts => facts?,
        };
        look(&here, &facts).map_err(|why| {
            io::Error::new(ErrorKind::PermissionDenied, Exposed { at: here.clone(), why })
        })?;
        if facts.file_type().is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::other(format!("{}: too many links", path.display())));
            }
            let target = fs::read_link(&here)?;
            if target.is_absolute() {
                here = PathBuf::from("/");
            } else {
                here.pop();
            }
            for name in names(&target).into_iter().rev() {
                ahead.push_front(name);
            }
        }
        match ahead.pop_front() {
            None => return Ok(()),
            Some(name) if name == ".." => _ = here.pop(),
            Some(name) => here.push(name),
        }
    }
}

/// Returns the names of directories and files in a path, including `..`.
fn names(path: &Path) -> VecDeque<OsString> {
    let parts = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

/// Returns the [`Exposed`] path that an error of [`check`] is about; `None` for other errors.
pub fn exposed(error: &io::Error) -> Option<&Exposed> {
    error.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, lchown, symlink};

    fn refused(path: &Path) -> Exposed {
        let error = check(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        exposed(&error).unwrap().clone()
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_named_wherever_it_is_on_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let above = directory.path().join("above");
        let below = above.join("below");
        fs::create_dir_all(&below).unwrap();
        check(&below).unwrap();
        check(&below.join("not/there/yet")).unwrap();
        for (mode, good) in [(0o755, true), (0o775, false), (0o757, false), (0o1777, true)] {
            fs::set_permissions(&above, Permissions::from_mode(mode)).unwrap();
            if good {
                check(&below).unwrap();
            } else {
                let found = refused(&below);
                assert_eq!(found.at, above);
                assert!(found.why.contains(&format!("{mode:04o}")), "{found}");
            }
        }
    }

    #[test]
    fn what_a_link_leads_through_is_looked_at_too() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("open/inner")).unwrap();
        fs::set_permissions(at("open"), Permissions::from_mode(0o777)).unwrap();
        symlink("open/inner", at("link")).unwrap();
        symlink(at("link"), at("second")).unwrap();
        assert_eq!(refused(&at("second/file")).at, at("open"));
        symlink("loop", at("loop")).unwrap();
        assert!(check(&at("loop")).unwrap_err().to_string().contains("too many links"));
        fs::create_dir(at("closed")).unwrap();
        symlink("closed/../closed", at("third")).unwrap();
        check(&at("third/file")).unwrap();
    }

    #[test]
    fn what_belongs_to_another_user_is_refused_links_included() {
        if !geteuid().is_root() {
            println!("skipped: only root gives files away");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (own, other) = (directory.path().join("own"), directory.path().join("other"));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&other).unwrap();
        chown(&other, Some(65_534), None).unwrap();
        let found = refused(&other.join("x"));
        assert!(found.at == other && found.why.contains("user 65534"), "{found}");
        // As in /tmp, the owner of the link may replace it.
        let link = directory.path().join("link");
        symlink(&own, &link).unwrap();
        check(&link).unwrap();
        lchown(&link, Some(65_534), None).unwrap();
        assert_eq!(refused(&link).at, link);
    }

    #[test]
    fn a_directory_is_made_with_its_mode_and_not_below_another_user_s() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/c");
        for _ in 0..2 {
            make_directory(&path, 0o755).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o755);
        }
        let open = directory.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        make_directory(&open.join("d"), 0o755).unwrap_err();
        assert!(!open.join("d").exists());
    }
}
