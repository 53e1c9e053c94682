//! Files that hold a secret: read only if no user but the owner may access them.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

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
    /// Returns the fault and its remedy as text. The text is about a file with a key.
    pub fn fault(self, path: &Path) -> Fault {
        let shown = path.display();
        match self {
            Self::Mode(mode) => Fault {
                what: format!("others may use the key in {shown} (mode {mode:04o})"),
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
/// # Errors
/// An error of the operating system, if the file cannot be opened.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
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
