//! Connections to the other half of the proxy or to the NFS server, by name or address.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use prometheus_client::metrics::counter::Counter;
use rustls::{ClientConfig, ClientConnection};
use rustls_pki_types::ServerName;

use crate::limits::{self, CONNECT_WAIT_MAX};
use crate::lines::Lines;
use crate::link::{self, Link, Pacing};
use crate::reserved::{self, Reserved};
use crate::tls::{self, Identity};

/// Default port of the half beside the server. EFS's own proxy has 2049, but here the NFS server
/// uses that port.
pub const TLS_PORT: u16 = 20_050;
/// The port of NFS.
pub const NFS_PORT: u16 = 2049;

/// A host and a port, as the user writes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// A host name or an IP address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl Target {
    /// Reads `HOST`, `HOST:PORT`, `[V6]` or `[V6]:PORT`.
    ///
    /// # Errors
    /// A text for the user, if the form or the port is invalid.
    pub fn parse(text: &str, port: u16) -> Result<Self> {
        let wrong = || format!("{text:?}: expected HOST, HOST:PORT or [IPV6]:PORT");
        let (host, rest) = match text.strip_prefix('[') {
            Some(text) => text.split_once(']').with_context(wrong)?,
            None if text.matches(':').count() > 1 => (text, ""),
            None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
        };
        let port = match rest.strip_prefix(':') {
            Some(digits) => digits.parse().ok().filter(|port| *port != 0).with_context(wrong)?,
            None if rest.is_empty() => port,
            None => bail!("{}", wrong()),
        };
        if host.is_empty() {
            bail!("{}", wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Certificate files of the half of the proxy that runs beside the NFS client, and the name that
/// the server's certificate must have.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// File with the certificates that may have issued the server's certificate.
    pub ca: PathBuf,
    /// File with the lists of certificates that these issuers have revoked; `None`: no list is
    /// checked.
    pub crl: Option<PathBuf>,
    /// Certificate of this half; `None` if the server requires no certificate.
    pub own: Option<Identity>,
    /// Name in the server's certificate; `None` if it is the name of the target host.
    pub server_name: Option<String>,
}

/// Makes connections to one target.
#[derive(Debug)]
pub struct Dialer {
    /// Address of the server.
    pub target: Target,
    pacing: Pacing,
    tls: Option<Tls>,
    only_here: bool,
    reserved: Option<ReservedPorts>,
}

/// Use of source ports that only root may bind, if this process may use them.
#[derive(Debug)]
struct ReservedPorts {
    /// Number of connections for which no reserved port was free, so that they use another port.
    missed: Counter,
    lines: Lines,
}

#[derive(Debug)]
struct Tls {
    files: TlsFiles,
    name: ServerName<'static>,
    config: Mutex<Arc<ClientConfig>>,
}

impl Dialer {
    /// Creates a dialer for `target`, and reads the certificate files. Without `tls` connections
    /// are not encrypted.
    ///
    /// # Errors
    /// A text for the user, if a file or the server's name is invalid.
    pub fn new(target: Target, tls: Option<TlsFiles>, pacing: Pacing) -> Result<Self> {
        let tls = tls.map(|files| -> Result<Tls> {
            let name = files.server_name.clone().unwrap_or_else(|| target.host.clone());
            let name = ServerName::try_from(name.clone())
                .with_context(|| format!("{name:?} is no name of a server"))?;
            let config = load(&files, pacing)?;
            Ok(Tls { files, name, config: Mutex::new(config) })
        });
        Ok(Self { target, pacing, tls: tls.transpose()?, only_here: false, reserved: None })
    }

    /// Restricts connections to this machine, even if the name resolves to another machine later.
    #[must_use]
    pub fn only_here(self) -> Self {
        Self { only_here: true, ..self }
    }

    /// Makes connections from ports below 1024, as an NFS server requires for calls of root. If
    /// this process may not use these ports or none is free, connections are made from other ports.
    /// `missed` counts those.
    #[must_use]
    pub fn from_reserved_ports(self, missed: Counter) -> Self {
        Self { reserved: Some(ReservedPorts { missed, lines: Lines::default() }), ..self }
    }

    /// Reads the certificates again, for later connections. After an error the old certificates
    /// stay in use.
    ///
    /// # Errors
    /// The errors of [`Dialer::new`].
    pub fn reload(&self) -> Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        let config = load(&tls.files, self.pacing)?;
        *tls.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Connects to the first address of the name that answers, and completes the TLS handshake.
    ///
    /// # Errors
    /// A text for the user with a remedy, if no address answers or the handshake fails. An error of
    /// the operating system, if it has no file descriptor ([`limits::files_remedy`]).
    pub fn connect(&self) -> io::Result<Link> {
        let target = &self.target;
        // A lack of descriptors has nothing to do with the target, and callers recognise its code.
        let because = |e: io::Error| match limits::files_remedy(&e) {
            None => io::Error::new(e.kind(), format!("{target}: {e}")),
            Some(_) => e,
        };
        let addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(because)?;
        let mut error = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            if self.only_here && !address.ip().is_loopback() {
                let text = format!("{address} is not on this machine: see --trust-network");
                error = io::Error::new(ErrorKind::PermissionDenied, text);
                continue;
            }
            match self.open(address) {
                Ok(socket) => return self.link(socket).map_err(because),
                Err(e) => error = e,
            }
        }
        Err(because(error))
    }

    fn open(&self, to: SocketAddr) -> io::Result<TcpStream> {
        if let Some(ReservedPorts { missed, lines }) = &self.reserved {
            match reserved::connect(to, reserved::PORTS, CONNECT_WAIT_MAX)? {
                Reserved::Connected(socket) => return Ok(socket),
                // The missing permission was already logged at program start.
                Reserved::NotPermitted => {}
                Reserved::Exhausted => lines.say(|more| {
                    tracing::warn!(
                        "{to}: all ports from {} to {} are in use; from another one a `secure` \
                         export refuses: lower --clients or --connections{more}",
                        reserved::PORTS.start(),
                        reserved::PORTS.end()
                    );
                }),
            }
            missed.inc();
        }
        TcpStream::connect_timeout(&to, CONNECT_WAIT_MAX)
    }

    fn link(&self, socket: TcpStream) -> io::Result<Link> {
        link::prepare(&socket, self.pacing)?;
        let Some(tls) = &self.tls else { return Ok(Link::plain(socket, self.pacing)) };
        let config = Arc::clone(&tls.config.lock().unwrap_or_else(PoisonError::into_inner));
        let connection = ClientConnection::new(config, tls.name.clone());
        let connection = connection.map_err(|e| io::Error::other(tls::explain(&e)))?;
        Link::tls(socket, connection.into(), self.pacing)
    }
}

fn load(files: &TlsFiles, pacing: Pacing) -> Result<Arc<ClientConfig>> {
    let issuers = tls::Issuers { ca: &files.ca, crl: files.crl.as_deref() };
    tls::client(issuers, files.own.as_ref(), pacing.tls_record_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the check used the address that the name had at program start, but each
    /// connection resolved the name again.
    #[test]
    fn regression_nothing_leaves_the_machine_in_clear_if_a_name_changes() {
        let target = Target::parse("192.0.2.1", 9).unwrap();
        let dialer = Dialer::new(target, None, Pacing::default()).unwrap().only_here();
        assert_eq!(dialer.connect().unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn targets_are_names_and_addresses_with_and_without_ports() {
        let parsed = |text| Target::parse(text, 7).map(|t| (t.host.clone(), t.port)).ok();
        let is = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(parsed("nas"), is("nas", 7));
        assert_eq!(parsed("nas:20"), is("nas", 20));
        assert_eq!(parsed("10.0.0.1:20"), is("10.0.0.1", 20));
        assert_eq!(parsed("fd00::1"), is("fd00::1", 7));
        assert_eq!(parsed("[fd00::1]:20"), is("fd00::1", 20));
        for wrong in ["", ":20", "nas:", "nas:0", "nas:x", "nas:70000", "[fd00::1", "[::1]x"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        for text in ["nas:20", "[fd00::1]:20"] {
            assert_eq!(Target::parse(text, 7).unwrap().to_string(), text);
        }
    }
}
