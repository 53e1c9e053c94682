//! Input of a capture: opens, reads and decompresses a file, a pipe or standard input. A signal can
//! end the reading.
//!
//! ```text
//!  file, FIFO, standard input --> poll, read --> gzip, zstd --> pcap or pcapng
//!                                 (stop?)        (by the first bytes)
//! ```
//!
//! A FIFO is opened without waiting for its writer, and every wait for bytes ends when the caller
//! stops it. Compressed input is decompressed as it arrives; only the decoder's window is in
//! memory.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The name that stands for standard input.
pub const STDIN: &str = "-";
/// Longest wait for bytes before the caller's stop function is called again. A signal ends a wait
/// at once; this limit matters only for a signal that arrives just before the wait.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Last three bytes of the magic number of a skippable zstd frame; the first byte is from 0x50 to
/// 0x5f.
const ZSTD_SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];
const MAGIC_BYTES: u64 = 4;

/// Whether a file can be read more than once, as a regular file can, but a pipe cannot.
pub fn is_read_again(file: &Path) -> bool {
    file.as_os_str() != STDIN && std::fs::metadata(file).is_ok_and(|of| of.is_file())
}

/// The bytes of a capture, decompressed.
pub(crate) struct Input<'a> {
    bytes: Box<dyn Read + 'a>,
    taken: Rc<Cell<u64>>,
}

impl<'a> Input<'a> {
    /// Opens a file, or standard input for the name `-`. Once `stop` returns true, reading returns
    /// an error.
    pub(crate) fn open(file: &Path, stop: &'a dyn Fn() -> bool) -> io::Result<Self> {
        let opened = if file.as_os_str() == STDIN {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            OpenOptions::new().read(true).custom_flags(flags).open(file)?
        };
        let taken = Rc::new(Cell::new(0));
        let source = PolledFile { file: opened, stop, taken: Rc::clone(&taken) };
        Ok(Self { bytes: decompressed(source)?, taken })
    }

    /// Returns a counter of the bytes that were read from the file so far, before decompression.
    pub(crate) fn taken(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.taken)
    }
}

impl Read for Input<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(to)
    }
}

/// A file whose reads wait for bytes, until `stop` returns true.
struct PolledFile<'a> {
    file: File,
    stop: &'a dyn Fn() -> bool,
    taken: Rc<Cell<u64>>,
}

impl Read for PolledFile<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            if (self.stop)() {
                // The error is not `Interrupted`, because readers try again after `Interrupted`.
                return Err(io::Error::other("stopped"));
            }
            // A read from a FIFO that has no writer yet returns zero bytes, as at the end of a
            // file. Only `poll` distinguishes the two cases.
            let mut wanted = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut wanted, Some(&WAIT)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.file.read(to) {
                Ok(count) => {
                    self.taken.set(self.taken.get() + count as u64);
                    return Ok(count);
                }
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the bytes of a source, decompressed if its first bytes identify a compression format.
fn decompressed<'a>(mut source: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut magic = Vec::new();
    source.by_ref().take(MAGIC_BYTES).read_to_end(&mut magic)?;
    let is_skipped = magic.first().is_some_and(|first| first >> 4 == 5);
    let is_zstd = magic == ZSTD || (is_skipped && magic[1..] == ZSTD_SKIPPED);
    let is_gzip = magic.starts_with(&GZIP);
    let whole = io::Cursor::new(magic).chain(source);
    Ok(if is_gzip {
        Box::new(MultiGzDecoder::new(whole))
    } else if is_zstd {
        Box::new(Zstd { source: BufReader::new(whole), decoder: FrameDecoder::new(), open: false })
    } else {
        Box::new(whole)
    })
}

/// Decoder of consecutive zstd frames.
struct Zstd<R> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    /// Whether the decoder is within a frame.
    open: bool,
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.decoder.read(to)?;
            if count > 0 || to.is_empty() {
                return Ok(count);
            }
            if self.open && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.source, one);
                decoded.map_err(|error| self.failed(&error))?;
                continue;
            }
            self.open = false;
            if self.source.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => self.open = true,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(length.into());
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }
}

impl<R: Read> Zstd<R> {
    /// Returns the cause of a decoder's error: an error of the source, the early end of the source,
    /// or invalid bytes.
    fn failed(&mut self, error: &FrameDecoderError) -> io::Error {
        match self.source.fill_buf() {
            Ok([]) => ErrorKind::UnexpectedEof.into(),
            Ok(_) => io::Error::new(ErrorKind::InvalidData, format!("zstd: {error}")),
            Err(error) => error,
        }
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
