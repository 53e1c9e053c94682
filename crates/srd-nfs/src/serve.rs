//! The half beside the NFS server: takes TLS off, and forwards the bytes.
//!
//! Each connection becomes one to the server. Records are not parsed: they come and go whole from
//! the other half, and an invalid one harms only its own connection. Only the end of the first
//! record matters: from then on, a client without a certificate is not evicted.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustls::{ServerConfig, ServerConnection};

use crate::accept::{Acceptor, Admission, ConnectionSlot};
use crate::dial::Dialer;
use crate::limits::{DRAIN_WAIT_MAX, Limits};
use crate::lines::Lines;
use crate::link::{self, Link, Pacing, ReadHalf, WriteHalf};
use crate::metrics::Metrics;
use crate::record::FirstRecord;
use crate::stop::Stop;
use crate::tls::{self, Identity, Issuers};

/// Bytes that are handed on at once.
const RELAY_BYTES: usize = 256 << 10;
/// Timeout of a read from the server; a silence of this length ends a drain.
const QUIET: Duration = Duration::from_secs(1);

/// The files of TLS.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The server's certificate and key.
    pub own: Identity,
    /// Issuers of clients' certificates; without them every client is served.
    pub client_ca: Option<PathBuf>,
    /// Their lists of revoked certificates.
    pub crl: Option<PathBuf>,
    /// Names of which a client's certificate must have one; if empty, any name is accepted.
    pub client_names: Vec<String>,
}

/// Options for serving clients.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// The bounds of the process.
    pub limits: Limits,
    /// Division of bytes into segments.
    pub pacing: Pacing,
    /// Without TLS: also from ports that any user may have.
    pub any_user: bool,
}

/// Certificates for the TLS sessions with the other half.
#[derive(Debug)]
pub struct Certificates {
    files: TlsFiles,
    pacing: Pacing,
    config: Mutex<Arc<ServerConfig>>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that is not what it should be.
    pub fn read(files: TlsFiles, pacing: Pacing) -> Result<Self> {
        let config = Mutex::new(load(&files, pacing)?);
        Ok(Self { files, pacing, config })
    }

    /// Reads them again, for connections from now on. After an error the old ones stay.
    ///
    /// # Errors
    /// As [`Certificates::read`].
    pub fn reload(&self) -> Result<()> {
        let config = load(&self.files, self.pacing)?;
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    fn shake_hands(&self, socket: TcpStream) -> io::Result<Link> {
        let config = Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner));
        let tls = ServerConnection::new(config).map_err(|e| io::Error::other(tls::explain(&e)))?;
        Link::tls(socket, tls.into(), self.pacing)
    }
}

fn load(files: &TlsFiles, pacing: Pacing) -> Result<Arc<ServerConfig>> {
    let issuers = |ca| Issuers { ca, crl: files.crl.as_deref() };
    let clients = files.client_ca.as_deref().map(|ca| (issuers(ca), &files.client_names[..]));
    tls::server(&files.own, clients, pacing.tls_record_bytes)
}

/// Starts to serve. Without `certificates` connections are plain.
///
/// # Errors
/// The thread cannot be started.
pub fn start(
    listener: TcpListener,
    dialer: Arc<Dialer>,
    certificates: Option<Arc<Certificates>>,
    options: Options,
    metrics: &Metrics,
) -> io::Result<Acceptor> {
    let Options { limits, pacing, any_user } = options;
    let stop = Stop::default();
    let any_port = any_user || certificates.is_some();
    let (metrics, counted) = (metrics.clone(), metrics.clone());
    let lines = Lines::default();
    let relay = Relay { dialer, certificates, pacing, metrics, stop: stop.clone(), lines };
    let serve = move |stream: TcpStream, place: &ConnectionSlot| match relay.run(stream, place) {
        // It is counted as refused.
        Err(_) if place.is_given_up() => {}
        Err(error) => {
            relay.metrics.clients_failed.inc();
            relay.lines.say(|more| tracing::warn!("{}: {error}{more}", place.from));
        }
        Ok(()) => {}
    };
    let admission = Admission {
        clients_max: limits.clients_max,
        address_max: limits.address_clients_max,
        strangers: true,
        any_port,
    };
    Acceptor::start(listener, admission, counted, stop, Box::new(serve))
}

struct Relay {
    dialer: Arc<Dialer>,
    certificates: Option<Arc<Certificates>>,
    pacing: Pacing,
    metrics: Metrics,
    stop: Stop,
    lines: Lines,
}

impl Relay {
    fn run(&self, stream: TcpStream, place: &ConnectionSlot) -> io::Result<()> {
        link::prepare(&stream, self.pacing)?;
        let link = match &self.certificates {
            Some(certificates) => certificates.shake_hands(stream)?,
            None => Link::plain(stream, self.pacing),
        };
        // A certificate was shown. Any other client is a stranger until it has sent a record.
        let is_known = self.certificates.as_ref().is_some_and(|all| all.files.client_ca.is_some());
        if is_known {
            place.keep();
        }
        let client = link.socket()?;
        let upstream = self.dialer.connect().inspect_err(|_| {
            self.metrics.upstreams_failed.inc();
        })?;
        let server = upstream.socket()?;
        server.set_read_timeout(Some(QUIET))?;
        self.metrics.upstreams.inc();
        let (from, to) = link.split();
        let relayed = thread::scope(|scope| {
            let up = || {
                let relayed = self.up(from, &server, (!is_known).then_some(place));
                // Replies may still come; while all ends they are waited for below.
                let how =
                    if self.stop.is_set() { Ok(()) } else { server.shutdown(Shutdown::Write) };
                if relayed.is_err() || how.is_err() {
                    let _ = server.shutdown(Shutdown::Both);
                }
                relayed
            };
            let name = "srd-nfs-calls".to_owned();
            let calls = thread::Builder::new().name(name).spawn_scoped(scope, up)?;
            let down = self.down(&server, to);
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
            let up = calls.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // The reader sees only that this end closed, when the writer has failed.
            down.and(up)
        });
        self.metrics.upstreams.dec();
        relayed
    }

    /// Hands calls on. A `stranger` keeps its place from its first whole record on.
    fn up(
        &self,
        mut from: ReadHalf,
        mut server: &TcpStream,
        mut stranger: Option<&ConnectionSlot>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; RELAY_BYTES];
        let mut first = FirstRecord::default();
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if is_silence(&error) => continue,
                // A stop has closed this end; the other half of a TLS pair may just vanish.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            };
            if stranger.is_some() && first.is_whole_with(&buffer[..count]) {
                stranger.take().expect("it is one").keep();
            }
            server.write_all(&buffer[..count])?;
            self.metrics.bytes_up.inc_by(count as u64);
        }
    }

    fn down(&self, mut server: &TcpStream, mut to: WriteHalf) -> io::Result<()> {
        let mut buffer = vec![0; RELAY_BYTES];
        let mut deadline = None;
        loop {
            match server.read(&mut buffer) {
                Ok(0) => {
                    to.finish();
                    return Ok(());
                }
                Ok(count) => {
                    to.send(&buffer[..count])?;
                    self.metrics.bytes_down.inc_by(count as u64);
                }
                Err(error) if is_silence(&error) && self.stop.is_set() => {
                    to.finish();
                    return Ok(());
                }
                Err(error) if is_silence(&error) => {}
                Err(error) => return Err(error),
            }
            if self.stop.is_set() {
                let begun = *deadline.get_or_insert_with(Instant::now);
                if begun.elapsed() > DRAIN_WAIT_MAX {
                    return Ok(());
                }
            }
        }
    }
}

fn is_silence(error: &io::Error) -> bool {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
