//! Bytes of a source, in a buffer that is as large as what is looked at.

use std::io::{self, ErrorKind, Read};

use super::ReadError;

/// The first size of the buffer. It grows to the claim of a record only as bytes of it arrive.
const BUFFER_BYTES: usize = 256 << 10;

/// A source, with the bytes that were read and not consumed.
pub(super) struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of the buffer's first byte in the source.
    offset: u64,
}

impl<R> Input<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, offset: 0 }
    }

    /// Bytes that are there.
    pub(super) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Offset of the unread bytes in the source.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Lets go of so many bytes, which are there.
    pub(super) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        self.offset += count as u64;
    }
}

impl<R: Read> Input<R> {
    /// Reads until the buffer holds `wanted` unread bytes. Returns false if the source ended
    /// before. Does not wait for more than `wanted` bytes, since the source may be a pipe whose
    /// writer runs for hours.
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

    /// Passes over so many bytes. False: the source ended before.
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

    /// Moves what is there to the beginning of the buffer, or doubles it.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        } else {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }

    /// Reads once, into a buffer that has room.
    fn read(&mut self) -> Result<usize, ReadError> {
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A compressed source that ends within its data.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
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
