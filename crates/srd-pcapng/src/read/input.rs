//! Bytes of a source, in a buffer that grows to the length of the longest record.

use std::io::{self, ErrorKind, Read};

use super::ReadError;

/// Initial size of the buffer in bytes. For a longer record, the buffer grows only as the bytes of
/// the record arrive.
const BUFFER_BYTES: usize = 256 << 10;

/// A source, with the bytes that were read and not consumed.
pub(super) struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the source of the first byte that was not consumed.
    offset: u64,
    is_cut: bool,
}

impl<R> Input<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, offset: 0, is_cut: false }
    }

    /// Returns the bytes that were read and not consumed.
    pub(super) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the offset in the source of the first byte that was not consumed.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the source ended within its data: a compressed source whose last bytes are missing.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Consumes `count` bytes, which must have been read.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        self.offset += count as u64;
    }
}

impl<R: Read> Input<R> {
    /// Reads until the buffer holds `wanted` bytes that were not consumed. Returns false if the
    /// source ended before. Does not wait for more than `wanted` bytes, since the source may be a
    /// pipe whose writer runs for hours.
    pub(super) fn fill(&mut self, wanted: usize) -> Result<bool, ReadError> {
        while self.end - self.start < wanted {
            if self.end == self.buffer.len() {
                self.make_room();
            }
            if self.read()? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Skips `count` bytes. Returns false if the source ended before.
    pub(super) fn skip(&mut self, mut count: u64) -> Result<bool, ReadError> {
        loop {
            let there = (self.end - self.start) as u64;
            let now = usize::try_from(there.min(count)).unwrap_or(0);
            self.consume(now);
            count -= now as u64;
            if count == 0 {
                return Ok(true);
            }
            (self.start, self.end) = (0, 0);
            if self.read()? == 0 {
                return Ok(false);
            }
        }
    }

    /// Frees space at the end of the buffer: moves the bytes that were not consumed to the
    /// beginning of the buffer, or doubles the buffer if they are there already.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        } else {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }

    /// Reads once, into the free space at the end of the buffer. Returns the number of bytes; zero
    /// at the end of the source.
    fn read(&mut self) -> Result<usize, ReadError> {
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    self.is_cut = true;
                    return Ok(0);
                }
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
