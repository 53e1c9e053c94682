//! Content of a file for a process that may not have the file itself: a copy in memory, which
//! no process can change. With a descriptor of the file, the process could read what the file
//! contains later, keep its file system busy, or find further files through `/proc`.

use std::fs::File;
use std::io::{self, Read, Seek};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Returns a copy of at most `bytes_max` bytes, whose position is its beginning. Neither its bytes
/// nor its length can be changed.
///
/// # Errors
/// An error of the operating system, if the content cannot be read or copied.
pub fn copy(from: impl Read, bytes_max: u64) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut copy = File::from(memfd_create("srd-copy", flags)?);
    io::copy(&mut from.take(bytes_max), &mut copy)?;
    copy.rewind()?;
    fcntl_add_seals(
        &copy,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_copy_has_a_limit_and_stays_as_it_is() {
        let mut copy = copy(&b"content"[..], 4).unwrap();
        let mut text = String::new();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "cont");
        copy.rewind().unwrap();
        copy.write_all(b"x").unwrap_err();
        copy.set_len(1).unwrap_err();
        copy.set_len(9).unwrap_err();
        fcntl_add_seals(&copy, SealFlags::empty()).unwrap_err();
    }
}
