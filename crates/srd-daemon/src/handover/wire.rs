//! Transfer of a hand-over: lines of text and descriptors over a Unix socket, and the state in an
//! anonymous file. Cards that have no daemon use it as well.

use std::fs::File;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use srd_trust::text::clean_json;

/// Maximum number of descriptors in one message. Linux allows 253.
const DESCRIPTORS_ONCE: usize = 200;
/// Maximum number of descriptors in all messages.
pub const DESCRIPTORS_MAX: usize = 65_536;
/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: usize = 4096;
/// Maximum size of the file with a state in bytes. The state grows with the number of connections,
/// and exceeds 2 GiB on a large host.
const STATE_BYTES_MAX: u64 = 16 << 30;
/// Bytes of the length that precedes each part of a state.
const LENGTH_BYTES: u64 = 8;

/// Text for the end of the connection.
const CLOSED: &str =
    "the other process has closed the connection: it ended, or served another take-over";

/// A connection that receives lines and descriptors.
#[derive(Debug)]
pub struct LineConnection {
    stream: UnixStream,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    /// End of the time for all reads and writes; `None`: the limits of the socket are for each.
    until: Option<Instant>,
}

impl LineConnection {
    /// A connection whose time limits are set.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, bytes: Vec::new(), descriptors: Vec::new(), until: None }
    }

    /// Sets the end of the time for all reads and writes together, in place of the limits of the
    /// socket.
    pub(crate) fn limit(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Gives the next read or write the time that is left.
    fn set_limits(&self) -> Result<()> {
        let Some(until) = self.until else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the other process takes too long");
        }
        self.stream.set_read_timeout(Some(left))?;
        Ok(self.stream.set_write_timeout(Some(left))?)
    }

    /// Returns the stream below.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a line.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn say(&mut self, text: &str) -> Result<()> {
        self.set_limits()?;
        Ok(self.stream.write_all(format!("{text}\n").as_bytes())?)
    }

    /// Sends a line, and returns the next line that is not empty; `None` if the other end has
    /// closed the connection, also before it has read the line.
    ///
    /// # Errors
    /// If the other end sends nothing for the time limit, or another error of the operating system.
    pub fn exchange(&mut self, text: &str) -> Result<Option<String>> {
        match self.say(text) {
            Err(error) if is_closed(&error) => Ok(None),
            said => said.and_then(|()| self.line_or_end()),
        }
    }

    /// Sends file descriptors over the connection.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn hand(&mut self, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        for some in descriptors.chunks(DESCRIPTORS_ONCE) {
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_ONCE))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !control.push(SendAncillaryMessage::ScmRights(some)) {
                bail!("a message with {} descriptors has no room", some.len());
            }
            self.set_limits()?;
            sendmsg(&self.stream, &[IoSlice::new(b"\n")], &mut control, SendFlags::NOSIGNAL)
                .context("descriptors cannot be handed over")?;
        }
        Ok(())
    }

    /// Returns the next line that is not empty.
    ///
    /// # Errors
    /// If the other end sends nothing for the time limit, or closes the connection.
    pub fn next_line(&mut self) -> Result<String> {
        self.line_or_end()?.context(CLOSED)
    }

    /// Returns the next line that is not empty; `None` if the other end closes the connection.
    ///
    /// # Errors
    /// If the other end sends nothing for the time limit.
    pub fn line_or_end(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
                if end > 0 {
                    clean_json(&mut line);
                    return Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()));
                }
                continue;
            }
            if self.bytes.len() > LINE_BYTES_MAX {
                bail!("a line of more than {LINE_BYTES_MAX} bytes");
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Receives this number of descriptors.
    ///
    /// # Errors
    /// The errors of [`LineConnection::next_line`].
    pub fn descriptors(&mut self, count: usize) -> Result<Vec<OwnedFd>> {
        while self.descriptors.len() < count {
            if !self.read()? {
                bail!(CLOSED);
            }
        }
        Ok(self.descriptors.drain(..count).collect())
    }

    /// Reads bytes and descriptors. Returns false if the other end has closed the connection.
    fn read(&mut self) -> Result<bool> {
        self.set_limits()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 512];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
        let count = match received {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            // The other process was killed before it has read everything.
            Err(rustix::io::Errno::CONNRESET) => return Ok(false),
            Err(rustix::io::Errno::AGAIN) => bail!("the other process sends nothing"),
            Err(error) => return Err(error).context("the other process"),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                self.descriptors.extend(some);
            }
        }
        if self.descriptors.len() > DESCRIPTORS_MAX {
            bail!("more than {DESCRIPTORS_MAX} descriptors");
        }
        self.bytes.extend_from_slice(&bytes[..count]);
        Ok(count > 0)
    }
}

/// Whether a write has failed because the other process has closed the connection.
fn is_closed(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::BrokenPipe | ErrorKind::ConnectionReset))
}

/// Writes the parts of a state to an anonymous file.
///
/// # Errors
/// If the state is too large, or an error of the operating system.
pub fn file_of(parts: &[&[u8]]) -> Result<File> {
    let bytes: u64 = parts.iter().map(|part| LENGTH_BYTES + part.len() as u64).sum();
    if bytes > STATE_BYTES_MAX {
        bail!("the state has {bytes} bytes: {STATE_BYTES_MAX} are handed over at most");
    }
    let mut file = File::from(memfd_create("srd-state", MemfdFlags::CLOEXEC)?);
    for part in parts {
        let length = u64::try_from(part.len())?;
        file.write_all(&length.to_le_bytes())?;
        file.write_all(part)?;
    }
    Ok(file)
}

/// Reads the parts of a file that contains a state.
///
/// # Errors
/// If the file is cut off.
pub fn parts_of<const N: usize>(file: &File) -> Result<[Vec<u8>; N]> {
    let bytes = file.metadata()?.len();
    if bytes > STATE_BYTES_MAX {
        bail!("the state has {bytes} bytes: {STATE_BYTES_MAX} are taken over at most");
    }
    let mut at = 0;
    let mut part = || {
        let mut length = [0; 8];
        file.read_exact_at(&mut length, at).context("the state is cut off")?;
        at += LENGTH_BYTES;
        let length = u64::from_le_bytes(length);
        if length > bytes {
            bail!("the state is cut off");
        }
        let mut part = vec![0; usize::try_from(length)?];
        file.read_exact_at(&mut part, at).context("the state is cut off")?;
        at += length;
        anyhow::Ok(part)
    };
    let mut parts = [const { Vec::new() }; N];
    for of in &mut parts {
        *of = part()?;
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_state_that_is_cut_off_or_too_large_is_refused() {
        let parts = file_of(&[b"one", b""]).unwrap();
        assert_eq!(parts_of::<2>(&parts).unwrap(), [b"one".to_vec(), Vec::new()]);
        assert!(parts_of::<3>(&parts).is_err());
        // The file has no memory for its size.
        let large = file_of(&[b"one"]).unwrap();
        large.set_len(STATE_BYTES_MAX + 1).unwrap();
        assert!(parts_of::<1>(&large).unwrap_err().to_string().contains("at most"));
    }

    /// The card of a large host could not be handed over.
    #[test]
    fn regression_a_state_of_more_than_2_gib_is_read() {
        let file = file_of(&[b"one"]).unwrap();
        // The file has no memory for its size.
        file.set_len(3 << 30).unwrap();
        assert_eq!(parts_of::<1>(&file).unwrap(), [b"one".to_vec()]);
    }

    #[test]
    fn regression_empty_lines_do_not_extend_the_time() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut line = LineConnection::new(here);
        line.limit(Instant::now() + Duration::from_millis(200));
        let sends = std::thread::spawn(move || {
            while there.write_all(b"\n").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        line.next_line().unwrap_err();
        // The time is over for writes as well, until there is a new limit.
        line.say("x").unwrap_err();
        line.limit(Instant::now() + Duration::from_secs(60));
        line.say("x").unwrap();
        drop(line);
        sends.join().unwrap();
    }
}
