//! Reading of files that a scenario names. Another user may have written them.
//!
//! Bound: [`FILE_BYTES_MAX`], and regular files only. So no run waits for a FIFO without a writer,
//! or reads a device without end.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;

/// Largest size of a file that a scenario may name, in bytes: enough for the largest schedule of
/// ranks.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 30;

/// Reads a whole file.
///
/// # Errors
/// If the path is no regular file, or the file is too large or cannot be read.
pub(crate) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    bytes_within(path, FILE_BYTES_MAX)
}

/// Reads a whole file of text.
///
/// # Errors
/// The errors of [`bytes`], and text that is not UTF-8.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let bytes = bytes(path)?;
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "no text (UTF-8)"))
}

fn bytes_within(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // The type is checked before the file is opened, because opening a FIFO would wait for a
    // writer.
    let facts = std::fs::metadata(path)?;
    if !facts.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "no regular file"));
    }
    let too_large = || {
        let text = format!("more than {most} bytes, the most of a file: take a smaller one");
        Error::new(ErrorKind::InvalidData, text)
    };
    if facts.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // Reads one byte more than allowed, because the file may have grown since its size was checked.
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_file_without_end_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, [b'a'; 9]).unwrap();
        assert_eq!(bytes_within(&file, 9).unwrap().len(), 9);
        assert!(bytes_within(&file, 8).unwrap_err().to_string().contains("more than 8 bytes"));
        assert_eq!(text(&file).unwrap(), "aaaaaaaaa");
        std::fs::write(&file, [0xff]).unwrap();
        assert!(text(&file).unwrap_err().to_string().contains("UTF-8"));
        for other in [Path::new("/dev/zero"), directory.path()] {
            assert!(bytes(other).unwrap_err().to_string().contains("no regular file"), "{other:?}");
        }
        assert_eq!(bytes(&directory.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
