//! The half beside the NFS server: decrypts TLS, and forwards the bytes.
//!
//! For each accepted connection, one connection to the server is made. Records are not parsed: the
//! other half sends them whole, and an invalid record harms only its own connection. Only the end
//! of the first record is detected: from then on, the connection of a client without a certificate
//! cannot be evicted.

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

/// Largest number of bytes that are forwarded at once.
const RELAY_BYTES: usize = 256 << 10;
/// Timeout of a read from the server; a silence of this length ends a drain.
const QUIET: Duration = Duration::from_secs(1);

/// Certificate files of the half beside the NFS server.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// Files with this half's certificate and key.
    pub own: Identity,
    /// File with the certificates that may have issued clients' certificates; `None`: every client
    /// is served.
    pub client_ca: Option<PathBuf>,
    /// File with the lists of certificates that these issuers have revoked; `None`: no list is
    /// checked.
    pub crl: Option<PathBuf>,
    /// Accepted names; a client's certificate must have one of these names. If empty, any name is
    /// accepted.
    pub client_names: Vec<String>,
}

/// Options for serving clients.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// Limits of the process.
    pub limits: Limits,
    /// Rules for dividing bytes into TCP segments and TLS records.
    pub pacing: Pacing,
    /// Whether, without TLS, connections from ports that any user may bind are also accepted.
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
    /// A text for the user, if a file cannot be read or has the wrong content.
    pub fn read(files: TlsFiles, pacing: Pacing) -> Result<Self> {
        let config = Mutex::new(load(&files, pacing)?);
        Ok(Self { files, pacing, config })
    }

    /// Reads the files again, for later connections. After an error the old certificates stay in
    /// use.
    ///
    /// # Errors
    /// The errors of [`Certificates::read`].
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

/// Starts the half of the proxy beside the NFS server. Without `certificates` it accepts
/// connections without TLS.
///
/// # Errors
/// An error of the operating system, if the thread cannot be started.
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
        // An evicted connection was already counted as refused.
        Err(_) if place.is_given_up() => {}
        Err(error) => {
            relay.metrics.clients_failed.inc();
            let error = relay.metrics.explained(error);
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
        // A client with a certificate is known. Any other client is a stranger until it has sent a
        // record.
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
                // Replies may still arrive. If the process is to end, `down` waits for them.
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
            // If the writer has failed, the reader only sees that this end was closed, so the
            // writer's error has priority.
            down.and(up)
        });
        self.metrics.upstreams.dec();
        relayed
    }

    /// Forwards calls. A `stranger` cannot be evicted after its first whole record.
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
                // A stop of this process has closed this end, or the other half has ended without a
                // TLS close notification.
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
