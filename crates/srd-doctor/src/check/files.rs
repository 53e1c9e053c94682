//! Files below a root directory: functions that read them, and functions that write them
//! atomically.
//!
//! A machine image is not trusted. Its links are resolved as if the image were the root
//! (`openat2`), so they cannot lead out of it; only regular files are opened, and at most 1 MiB
//! of text is read.
//!
//! Writes are staged: all files are written to the disk under other names before the first of them
//! is renamed. If the disk fills up before that, everything is left unchanged.

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The longest text that is read from an image, in bytes.
pub(super) const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Largest number of names that are read from a directory of an image.
pub(super) const ENTRIES_MAX: usize = 4096;
/// Suffix of the temporary name of a staged file.
const STAGED: &str = ".srd-new";

/// A root directory, of this machine or of a machine image, and access to the files below it.
pub(super) struct Files {
    root: PathBuf,
    is_image: bool,
}

/// A staged file, which has a temporary name.
struct Staged {
    directory: OwnedFd,
    name: String,
    waiting: String,
    has_its_name: bool,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.has_its_name {
            let _ = fs::unlinkat(&self.directory, &self.waiting, AtFlags::empty());
        }
    }
}

/// Staged files, which are renamed together in the order in which they were staged.
#[derive(Default)]
pub(super) struct Batch(Vec<Staged>);

impl Batch {
    /// Renames each file to its final name.
    pub(super) fn commit(mut self) -> io::Result<()> {
        for staged in &mut self.0 {
            let directory = &staged.directory;
            fs::renameat(directory, &staged.waiting, directory, &staged.name)?;
            staged.has_its_name = true;
            // The directory is synchronised after each rename, so that the files get their names on
            // the disk in order.
            fs::fsync(directory)?;
        }
        Ok(())
    }
}

impl Files {
    pub(super) fn below(root: &Path, is_image: bool) -> Self {
        Self { root: root.to_owned(), is_image }
    }

    /// Opens a path below the root. In an image, links are resolved within the root; elsewhere they
    /// may lead out of it.
    fn open(&self, file: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        if !self.is_image {
            return Ok(fs::open(self.root.join(file), flags, Mode::empty())?);
        }
        let root = fs::open(&self.root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let path = if file.is_empty() { "." } else { file };
        match fs::openat2(&root, path, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS) => Err(Error::new(
                ErrorKind::Unsupported,
                "this kernel has no openat2, without which links could lead out of the image: \
                 use Linux 5.6 or later",
            )),
            result => Ok(result?),
        }
    }

    /// Returns the whole text of a file.
    pub(super) fn text(&self, file: &str) -> io::Result<String> {
        if !self.is_image {
            return std::fs::read_to_string(self.root.join(file));
        }
        // The type is checked first, because opening a device or a FIFO can have effects.
        let found = self.open(file, OFlags::PATH)?;
        if FileType::from_raw_mode(fs::fstat(&found)?.st_mode) != FileType::RegularFile {
            return Err(Error::new(ErrorKind::InvalidInput, "no regular file"));
        }
        let opened = File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
        let mut text = String::new();
        opened.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > TEXT_BYTES_MAX {
            return Err(Error::new(ErrorKind::InvalidData, "longer than 1 MiB"));
        }
        Ok(text)
    }

    /// Whether the path exists; links are followed.
    pub(super) fn exists(&self, file: &str) -> bool {
        self.open(file, OFlags::PATH).is_ok()
    }

    /// Whether the path is a directory; links are followed.
    pub(super) fn is_directory(&self, file: &str) -> bool {
        self.open(file, OFlags::PATH | OFlags::DIRECTORY).is_ok()
    }

    /// Returns the target of a symbolic link.
    pub(super) fn link_target(&self, file: &str) -> Option<PathBuf> {
        let (parent, name) = file.rsplit_once('/').unwrap_or(("", file));
        let directory = self.open(parent, OFlags::PATH | OFlags::DIRECTORY).ok()?;
        let target = fs::readlinkat(&directory, name, Vec::new()).ok()?;
        Some(PathBuf::from(target.to_string_lossy().into_owned()))
    }

    /// Returns the names in a directory, sorted; an empty list if the directory cannot be read.
    pub(super) fn entries(&self, directory: &str) -> Vec<String> {
        let Ok(opened) = self.open(directory, OFlags::RDONLY | OFlags::DIRECTORY) else {
            return Vec::new();
        };
        let Ok(listed) = fs::Dir::new(opened) else { return Vec::new() };
        let most = if self.is_image { ENTRIES_MAX } else { usize::MAX };
        let names = listed.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> =
            names.filter(|name| name != "." && name != "..").take(most).collect();
        names.sort();
        names
    }

    /// Opens the directory that contains `file`, and creates it if it is missing. Returns the open
    /// directory and the file's name in it.
    fn place<'a>(&self, file: &'a str) -> io::Result<(OwnedFd, &'a str)> {
        let (parent, name) = file.rsplit_once('/').unwrap_or(("", file));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut directory = self.open("", flags)?;
        for (end, _) in parent.match_indices('/').chain([(parent.len(), "")]) {
            let above = parent.get(..end).unwrap_or(parent);
            directory = match self.open(above, flags) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let last = above.rsplit('/').next().unwrap_or(above);
                    match fs::mkdirat(&directory, last, Mode::from_raw_mode(0o755)) {
                        Ok(()) => self.open(above, flags)?,
                        Err(Errno::EXIST) => {
                            return Err(Error::new(
                                ErrorKind::InvalidInput,
                                format!(
                                    "/{above} is a link to what is not in {}",
                                    self.root.display()
                                ),
                            ));
                        }
                        Err(errno) => return Err(errno.into()),
                    }
                }
                result => result?,
            };
        }
        Ok((directory, name))
    }

    /// Returns the status of the file that a write will replace; `None` if it is missing. If it is
    /// anything but a regular file, an error is returned.
    fn replaced(directory: impl AsFd, name: &str) -> io::Result<Option<Stat>> {
        let stat = match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            result => result?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(stat)),
            FileType::Symlink => {
                Err(Error::new(ErrorKind::InvalidInput, "a symbolic link: remove it first"))
            }
            _ => Err(Error::new(ErrorKind::InvalidInput, "no regular file: remove it first")),
        }
    }

    /// Writes `text` to the disk under a temporary name. [`Batch::commit`] renames the temporary
    /// file to `file`.
    pub(super) fn stage(&self, batch: &mut Batch, file: &str, text: &str) -> io::Result<()> {
        let (directory, name) = self.place(file)?;
        let before = Self::replaced(&directory, name)?;
        let waiting = format!(".{name}{STAGED}");
        // A program that was killed may have left the temporary file.
        match fs::unlinkat(&directory, &waiting, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = before.map_or(0o644, |stat| stat.st_mode & 0o7777);
        let mut opened =
            File::from(fs::openat(&directory, &waiting, flags, Mode::from_raw_mode(0o600))?);
        let name = name.to_owned();
        batch.0.push(Staged { directory, name, waiting, has_its_name: false });
        opened.write_all(text.as_bytes())?;
        fs::fchmod(&opened, Mode::from_raw_mode(mode))?;
        opened.sync_all()
    }

    /// Creates a symbolic link at `file`.
    pub(super) fn link(&self, target: &str, file: &str) -> io::Result<()> {
        let (directory, name) = self.place(file)?;
        fs::symlinkat(target, &directory, name)?;
        Ok(fs::fsync(&directory)?)
    }

    /// Removes a file or link; a missing file is not an error.
    pub(super) fn remove(&self, file: &str) -> io::Result<()> {
        let (parent, name) = file.rsplit_once('/').unwrap_or(("", file));
        let directory = match self.open(parent, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            result => result?,
        };
        match fs::unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) => Ok(fs::fsync(&directory)?),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_image_is_read_within_its_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("image");
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::write(directory.path().join("secret"), "outside").unwrap();
        std::fs::write(root.join("secret"), "inside").unwrap();
        let files = Files::below(&root, true);
        // Each link, absolute or relative, leads to a path within the image.
        symlink("/secret", root.join("etc/absolute")).unwrap();
        symlink("../../secret", root.join("etc/relative")).unwrap();
        for name in ["etc/absolute", "etc/relative", "../secret"] {
            assert_eq!(files.text(name).unwrap(), "inside", "{name}");
        }
        let outside = directory.path().join("secret");
        symlink(outside, root.join("etc/out")).unwrap();
        assert_eq!(files.text("etc/out").unwrap_err().kind(), ErrorKind::NotFound);
        // Opening a FIFO without a writer would block.
        let fifo = root.join("etc/fifo");
        fs::mknodat(fs::CWD, fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(files.text("etc/fifo").unwrap_err().to_string().contains("no regular file"));
        let most = usize::try_from(TEXT_BYTES_MAX).unwrap();
        std::fs::write(root.join("etc/long"), vec![b'a'; most]).unwrap();
        assert_eq!(files.text("etc/long").unwrap().len(), most);
        std::fs::write(root.join("etc/long"), vec![b'a'; most + 1]).unwrap();
        assert!(files.text("etc/long").unwrap_err().to_string().contains("1 MiB"));
    }

    #[test]
    fn a_directory_of_an_image_is_read_to_its_bound() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..=ENTRIES_MAX {
            File::create(directory.path().join(number.to_string())).unwrap();
        }
        assert_eq!(Files::below(directory.path(), true).entries("").len(), ENTRIES_MAX);
    }

    #[test]
    fn files_take_their_names_together_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let files = Files::below(root, false);
        std::fs::write(root.join("old"), "before").unwrap();
        std::fs::write(root.join("wall"), "").unwrap();
        let mut batch = Batch::default();
        files.stage(&mut batch, "old", "after").unwrap();
        files.stage(&mut batch, "deep/er/new", "new").unwrap();
        assert!(files.stage(&mut batch, "wall/in", "no").is_err());
        drop(batch);
        assert_eq!(files.text("old").unwrap(), "before");
        assert_eq!(files.entries(""), ["deep", "old", "wall"]);
        assert!(files.entries("deep/er").is_empty());
        let mut batch = Batch::default();
        files.stage(&mut batch, "old", "after").unwrap();
        files.stage(&mut batch, "deep/er/new", "new").unwrap();
        batch.commit().unwrap();
        assert_eq!(files.text("old").unwrap(), "after");
        assert_eq!(files.text("deep/er/new").unwrap(), "new");
        assert_eq!(files.entries("deep/er"), ["new"]);
    }
}
