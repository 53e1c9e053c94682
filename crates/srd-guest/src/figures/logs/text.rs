//! Text files of flow logs, with or without compression.
//!
//! A file begins with the names of the fields. Each addition consists of complete lines, or in a
//! compressed file of a complete gzip member with lines. So a file can be read at any time. After a
//! failed write the incomplete part is cut off.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Size in bytes at which a file ends, as on EC2.
pub(crate) const FILE_BYTES_MAX: u64 = 75_000_000;

/// A text file of a flow log, to which lines are appended.
#[derive(Debug)]
pub(crate) struct TextFile {
    file: File,
    /// Size in bytes of the additions that were written completely.
    bytes: u64,
    gzip: bool,
}

impl TextFile {
    pub(crate) fn new(file: File, gzip: bool) -> Self {
        Self { file, bytes: 0, gzip }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= FILE_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends lines, all or none.
    pub(crate) fn append(&mut self, lines: &str) -> io::Result<()> {
        let written = self.write(lines);
        if written.is_err() {
            // If the file cannot be truncated, it is a device and not a regular file, and keeps no
            // data.
            let _ = self.file.set_len(self.bytes);
            let _ = self.file.seek(SeekFrom::Start(self.bytes));
        }
        self.bytes += written?;
        Ok(())
    }

    fn write(&mut self, lines: &str) -> io::Result<u64> {
        if !self.gzip {
            self.file.write_all(lines.as_bytes())?;
            return Ok(lines.len() as u64);
        }
        let mut member = GzEncoder::new(Vec::new(), Compression::default());
        member.write_all(lines.as_bytes())?;
        let member = member.finish()?;
        self.file.write_all(&member)?;
        Ok(member.len() as u64)
    }
}
