//! Files that hold a secret: read only if no user but the owner may access them.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::place;

/// Bits of a file's mode that let other users read or change the file.
const OTHERS: u32 = 0o077;

/// Reason why a file is not private: a user without permission can access it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Exposed {
    /// The file has this mode, which lets other users access it.
    Mode(u32),
    /// The file belongs to this user, which is neither root nor a permitted user.
    Owner(u32),
}

/// A fault of a file with a secret, and its remedy, as texts for a person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Description of the fault.
    pub what: String,
    /// Action that removes the fault.
    pub remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

impl std::error::Error for Fault {}

impl Exposed {
    /// Returns the fault and its remedy as text. The text is about a file with a key or a token.
    pub fn fault(self, path: &Path) -> Fault {
        let shown = path.display();
        match self {
            Self::Mode(mode) => Fault {
                what: format!("others may use the content of {shown} (mode {mode:04o})"),
                remedy: format!("chmod 600 {shown}"),
            },
            Self::Owner(owner) => Fault {
                what: format!("{shown} belongs to user {owner}, neither root nor us"),
                remedy: format!("chown {} {shown} (as root)", geteuid().as_raw()),
            },
        }
    }
}

/// Opens a regular file for reading; `None` if the path is another kind of file. The call never
/// blocks, while a plain `open` of a pipe would wait for its writer.
///
/// A link in the path is followed only if no other user can change the path ([`place::check`]).
/// Otherwise a user could make root read a file of root that has another purpose.
///
/// # Errors
/// An error of the operating system, if the file cannot be opened, or an error of
/// [`place::check`].
pub fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // The path has a link, or the kernel or a filter of system calls does not permit the call.
        Err(Errno::LOOP | Errno::NOSYS | Errno::PERM) => {
            place::check(path)?;
            openat(CWD, path, flags, Mode::empty())
        }
        opened => opened,
    };
    let file = File::from(file?);
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Checks that a file belongs to root, to this process's user or to `also`, and that other users
/// can neither read nor change it. The check uses the open file, since its name may already refer
/// to another file.
///
/// # Errors
/// An error of the operating system, if the attributes cannot be read. The inner error describes
/// the fault of the file.
pub fn check(file: &File, also: Option<u32>) -> io::Result<Result<(), Exposed>> {
    let facts = file.metadata()?;
    let mode = facts.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Ok(Err(Exposed::Mode(mode)));
    }
    let owner = facts.uid();
    let is_trusted = owner == 0 || owner == geteuid().as_raw() || Some(owner) == also;
    Ok(if is_trusted { Ok(()) } else { Err(Exposed::Owner(owner)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{chown, lchown, symlink};

    /// A link of another user made root read a file that has another purpose.
    #[test]
    fn regression_a_link_of_another_user_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("secret"), "secret").unwrap();
        fs::create_dir(at("theirs")).unwrap();
        symlink("../secret", at("theirs/file")).unwrap();
        symlink("theirs", at("link")).unwrap();
        fs::write(at("theirs/plain"), "plain").unwrap();
        for name in ["secret", "theirs/file", "link/plain"] {
            assert!(open(&at(name)).unwrap().is_some(), "links of this user are followed");
        }
        assert_eq!(open(&at("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
        if !geteuid().is_root() {
            println!("skipped: only root gives files away");
            return;
        }
        chown(at("theirs"), Some(65_534), None).unwrap();
        lchown(at("theirs/file"), Some(65_534), None).unwrap();
        let error = open(&at("theirs/file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        assert!(open(&at("theirs/plain")).unwrap().is_some(), "there is no link in this path");
        open(&at("link/plain")).unwrap_err();
    }
}
