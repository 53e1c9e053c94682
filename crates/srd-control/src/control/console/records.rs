//! Search in the records of a flow log: text files, which the card writes.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Largest number of records in an answer.
pub(super) const RECORDS_MAX: usize = 500;
/// Largest number of bytes that one search reads, from the newest file to older ones.
const BYTES_MAX: u64 = 16 << 20;
/// Largest number of words that a record is compared with; further words are ignored.
const WORDS_MAX: usize = 16;
/// Largest number of files of a directory that a search considers.
const FILES_MAX: usize = 10_000;

/// Outcome of a search.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Matches {
    /// The reason why records are missing; empty if all were searched.
    pub(super) note: String,
    /// Names of the fields of a record, separated by spaces.
    pub(super) fields: String,
    /// The newest records that contain all words, newest first.
    pub(super) records: Vec<String>,
}

/// Returns the newest records in a directory that contain all words of a text.
///
/// # Errors
/// If the directory or a file cannot be read. A missing directory contains no records.
pub(super) fn search(directory: &Path, text: &str) -> io::Result<Matches> {
    let mut found = Matches::default();
    let (files, others) = match files(directory) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    if others > 0 {
        found.note = format!(
            "{others} files are compressed or Parquet, and were not searched: DuckDB reads them."
        );
    }
    let words: Vec<&str> = text.split_whitespace().take(WORDS_MAX).collect();
    let mut left = BYTES_MAX;
    for path in files.iter().rev() {
        let Some((content, is_whole)) = read_end(path, &mut left)? else { continue };
        let mut lines: Vec<&str> = content.lines().collect();
        if is_whole && !lines.is_empty() {
            let fields = lines.remove(0);
            if found.fields.is_empty() {
                found.fields = fields.to_owned();
            }
        }
        let matching = lines.iter().rev().filter(|line| words.iter().all(|w| line.contains(w)));
        let room = RECORDS_MAX - found.records.len();
        found.records.extend(matching.take(room).map(|line| (*line).to_owned()));
        if found.records.len() == RECORDS_MAX {
            found.note = format!("The newest {RECORDS_MAX} matching records are shown.");
            break;
        }
        if left == 0 {
            found.note = format!("The newest {} MiB of records were searched.", BYTES_MAX >> 20);
            break;
        }
    }
    Ok(found)
}

/// Returns the text files of a directory, the oldest first, and the number of all other files.
fn files(directory: &Path) -> io::Result<(Vec<PathBuf>, usize)> {
    let mut text = Vec::new();
    let mut others = 0;
    for entry in std::fs::read_dir(directory)?.take(FILES_MAX) {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "log") {
            // A file may be renamed or removed meanwhile.
            let Ok(modified) = entry.metadata().and_then(|data| data.modified()) else { continue };
            text.push((modified, path));
        } else {
            others += 1;
        }
    }
    text.sort();
    Ok((text.into_iter().map(|(_, path)| path).collect(), others))
}

/// Reads the end of a file, at most `left` bytes, which are subtracted. Returns the whole lines,
/// and whether the file was read from its beginning; `None` if the file no longer exists.
fn read_end(path: &Path, left: &mut u64) -> io::Result<Option<(String, bool)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let size = file.metadata()?.len();
    let start = size.saturating_sub(*left);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(*left).read_to_end(&mut bytes)?;
    *left -= bytes.len() as u64;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    // The card may be about to write the last line.
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    if start > 0 {
        text.drain(..text.find('\n').map_or(text.len(), |end| end + 1));
    }
    Ok(Some((text, start == 0)))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    fn write(directory: &Path, name: &str, content: &str) {
        std::fs::write(directory.join(name), content).unwrap();
    }

    #[test]
    fn the_newest_records_with_all_words_come_first() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        assert_eq!(search(&at.join("missing"), "").unwrap(), Matches::default());
        write(at, "1.log", "version srcaddr action\n2 10.0.0.1 ACCEPT\n2 10.0.0.2 REJECT\n");
        write(at, "2.log", "version srcaddr action\n2 10.0.0.3 REJECT\n2 10.0.0.4 RE");
        let old = File::open(at.join("1.log")).unwrap();
        old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let found = search(at, "").unwrap();
        assert_eq!(found.fields, "version srcaddr action");
        assert_eq!(found.records, ["2 10.0.0.3 REJECT", "2 10.0.0.2 REJECT", "2 10.0.0.1 ACCEPT"]);
        assert_eq!(found.note, "");
        assert_eq!(search(at, "REJECT 0.2").unwrap().records, ["2 10.0.0.2 REJECT"]);
        write(at, "3.log.gz", "x");
        assert!(search(at, "").unwrap().note.starts_with("1 files are compressed"));
    }

    #[test]
    fn answers_are_bounded_by_records_and_by_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let mut content = "version action\n".to_owned();
        for number in 0..RECORDS_MAX + 20 {
            writeln!(content, "2 {number}").unwrap();
        }
        write(directory.path(), "1.log", &content);
        let found = search(directory.path(), "").unwrap();
        assert_eq!(found.records.len(), RECORDS_MAX);
        assert_eq!(found.records[0], format!("2 {}", RECORDS_MAX + 19));
        assert!(found.note.contains("500 matching"), "{}", found.note);
        let large = format!("version action\nfirst\n{}last\n", "2 x\n".repeat(5 << 20));
        write(directory.path(), "1.log", &large);
        let found = search(directory.path(), "t").unwrap();
        assert_eq!(found.records, ["last"], "the first record is more than 16 MiB away");
        assert!(found.note.contains("16 MiB"), "{}", found.note);
    }

    #[test]
    fn links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), "secret", "a\nb\n");
        let link = directory.path().join("1.log");
        std::os::unix::fs::symlink(directory.path().join("secret"), link).unwrap();
        assert!(search(directory.path(), "").unwrap().records.is_empty());
    }
}
