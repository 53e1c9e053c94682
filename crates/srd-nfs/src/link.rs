//! A connection, plain or TLS, as a half that reads and a half that writes.
//!
//! The two halves belong to two threads. Both need the state of TLS, so it is behind a lock,
//! which no thread holds while it waits for the network.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::net::sockopt;
use rustls::Connection;

use crate::limits::{HANDSHAKE_WAIT_MAX, RECORD_STALL_MAX, UNACKNOWLEDGED_MAX};
use crate::tls;

/// Largest number of bytes of one read from a TLS connection's socket.
const INCOMING_BYTES: usize = 64 << 10;
/// Largest number of bytes that are encrypted while the lock is held once.
const SEALED_BYTES: usize = 64 << 10;

/// Rules for dividing bytes into TCP segments and TLS records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pacing {
    /// Whether a small segment may be sent while another one is unacknowledged (TCP_NODELAY).
    pub nodelay: bool,
    /// Largest number of bytes of a TLS record; each record is then one write. If `None`, TLS
    /// records have up to 16 KiB and a message is one write.
    pub tls_record_bytes: Option<usize>,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { nodelay: true, tls_record_bytes: None }
    }
}

/// Sets the socket options that all connections have.
///
/// # Errors
/// An error of the operating system, if an option cannot be set.
pub fn prepare(socket: &TcpStream, pacing: Pacing) -> io::Result<()> {
    socket.set_nodelay(pacing.nodelay)?;
    socket.set_read_timeout(Some(RECORD_STALL_MAX))?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, UNACKNOWLEDGED_MAX)?;
    let limit_ms = u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).expect("seconds, not weeks");
    sockopt::set_tcp_user_timeout(socket, limit_ms)?;
    Ok(())
}

/// A connection that can be split into a reading and a writing half.
#[derive(Debug)]
pub struct Link {
    socket: TcpStream,
    tls: Option<Mutex<Connection>>,
    pacing: Pacing,
}

impl Link {
    /// Returns a connection without TLS.
    pub fn plain(socket: TcpStream, pacing: Pacing) -> Self {
        Self { socket, tls: None, pacing }
    }

    /// Completes the TLS handshake and returns the connection.
    ///
    /// # Errors
    /// A text for the user, if the other side's certificate is invalid, if it refuses ours, or if
    /// it does not answer in time.
    pub fn tls(socket: TcpStream, mut tls: Connection, pacing: Pacing) -> io::Result<Self> {
        tls.set_buffer_limit(None);
        handshake(&socket, &mut tls)?;
        socket.set_read_timeout(Some(RECORD_STALL_MAX))?;
        socket.set_write_timeout(None)?;
        Ok(Self { socket, tls: Some(Mutex::new(tls)), pacing })
    }

    /// Splits the connection into its two halves.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        let link = Arc::new(self);
        let incoming = if link.tls.is_some() { vec![0; INCOMING_BYTES] } else { Vec::new() };
        let read = ReadHalf { link: Arc::clone(&link), incoming, begin: 0, end: 0 };
        (read, WriteHalf { link, sealed: Vec::new() })
    }

    /// Returns the underlying socket, so that another thread can shut it down.
    ///
    /// # Errors
    /// An error of the operating system, if the socket cannot be duplicated.
    pub fn socket(&self) -> io::Result<TcpStream> {
        self.socket.try_clone()
    }

    fn lock(&self) -> Option<MutexGuard<'_, Connection>> {
        // A thread that panics also ends its connection, so the state behind a poisoned lock is not
        // used further.
        self.tls.as_ref().map(|tls| tls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn handshake(mut socket: &TcpStream, tls: &mut Connection) -> io::Result<()> {
    let deadline = Instant::now() + HANDSHAKE_WAIT_MAX;
    let late =
        || io::Error::new(ErrorKind::TimedOut, "no TLS handshake in time: is that port TLS?");
    while tls.is_handshaking() || tls.wants_write() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        socket.set_write_timeout(Some(left))?;
        socket.set_read_timeout(Some(left))?;
        let writes = tls.wants_write();
        let moved = if writes { tls.write_tls(&mut socket) } else { tls.read_tls(&mut socket) };
        let count = match moved {
            Ok(count) => count,
            // A signal interrupted the call: try again.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if is_timeout(&error) => return Err(late()),
            Err(error) => return Err(error),
        };
        if writes {
            continue;
        }
        if count == 0 {
            let text = "the other side ended the connection within the TLS handshake";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
        }
        if let Err(error) = tls.process_new_packets() {
            // Sends the TLS alert with the reason of the failure.
            let _ = tls.write_tls(&mut socket);
            return Err(io::Error::new(ErrorKind::InvalidData, tls::explain(&error)));
        }
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The half of a connection that reads.
#[derive(Debug)]
pub struct ReadHalf {
    link: Arc<Link>,
    /// Bytes from the socket that TLS has not processed yet.
    incoming: Vec<u8>,
    begin: usize,
    end: usize,
}

impl ReadHalf {
    /// Passes received bytes to TLS and returns the number of decrypted bytes in `into`; `None` if
    /// more bytes have to be received first.
    fn open(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut tls = self.link.lock().expect("only of TLS");
        loop {
            match tls.reader().read(into) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.begin == self.end {
                return Ok(None);
            }
            self.begin += tls.read_tls(&mut &self.incoming[self.begin..self.end])?;
            let opened = tls.process_new_packets();
            opened.map_err(|e| io::Error::new(ErrorKind::InvalidData, tls::explain(&e)))?;
        }
    }
}

impl Read for ReadHalf {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.link.tls.is_none() || into.is_empty() {
            return (&self.link.socket).read(into);
        }
        loop {
            if let Some(count) = self.open(into)? {
                return Ok(count);
            }
            (self.begin, self.end) = (0, (&self.link.socket).read(&mut self.incoming)?);
            if self.end == 0 {
                let text = "the connection ended without TLS's farewell";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
            }
        }
    }
}

/// The half of a connection that writes.
#[derive(Debug)]
pub struct WriteHalf {
    link: Arc<Link>,
    sealed: Vec<u8>,
}

impl WriteHalf {
    /// Sends all bytes, encrypted if the connection uses TLS.
    ///
    /// # Errors
    /// An error of the operating system, if the connection has failed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { link, sealed } = self;
        if link.tls.is_none() {
            return (&link.socket).write_all(bytes);
        }
        let at_once = link.pacing.tls_record_bytes.unwrap_or(SEALED_BYTES);
        for part in bytes.chunks(at_once) {
            let mut tls = link.lock().expect("only of TLS");
            tls.writer().write_all(part)?;
            seal(&mut tls, sealed)?;
            drop(tls);
            (&link.socket).write_all(sealed)?;
        }
        Ok(())
    }

    /// Sends the end of the stream. The other side may continue to send.
    pub fn finish(&mut self) {
        if let Some(mut tls) = self.link.lock() {
            tls.send_close_notify();
            let sealed = seal(&mut tls, &mut self.sealed);
            drop(tls);
            let sent = sealed.and_then(|()| (&self.link.socket).write_all(&self.sealed));
            if let Err(error) = sent {
                tracing::debug!("no farewell: {error}");
            }
        }
        let _ = self.link.socket.shutdown(Shutdown::Write);
    }
}

fn seal(tls: &mut Connection, sealed: &mut Vec<u8>) -> io::Result<()> {
    sealed.clear();
    while tls.wants_write() {
        tls.write_tls(sealed)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test may fail loudly
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// The kernel reports the socket options that `prepare`, the only place that sets them, has
    /// set.
    #[test]
    fn a_sockets_options_are_those_that_the_kernel_says_it_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for nodelay in [true, false] {
            prepare(&socket, Pacing { nodelay, ..Pacing::default() }).unwrap();
            assert_eq!(sockopt::tcp_nodelay(&socket).unwrap(), nodelay);
        }
        prepare(&socket, Pacing::default()).unwrap();
        assert!(sockopt::tcp_nodelay(&socket).unwrap(), "the default sends small segments at once");
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), UNACKNOWLEDGED_MAX);
        assert_eq!(
            sockopt::tcp_user_timeout(&socket).unwrap(),
            1000 * u32::try_from(UNACKNOWLEDGED_MAX.as_secs()).unwrap()
        );
    }
}
