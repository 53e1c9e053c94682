//! The connection to the controller.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use srd_enrol::frame::{CONTROLLER_BYTES_MAX, HOST_BYTES_MAX, Inbox, encode};
use srd_enrol::{Fingerprint, FromController, FromHost, Identity, Refusal, tls};

use crate::config::HostPort;

/// Longest time for a connection to one address of the controller. TCP repeats the first packet of
/// a connection after one second, which is no sooner than the next attempt.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(1);
/// Longest time of a handshake.
const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest pause of [`Link::receive`] without a message.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// Longest time in which the controller takes no byte of a message.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes that one call reads of the connection.
const READ_BYTES: usize = 16 << 10;
/// Text for the end of the connection.
const CLOSED: &str = "the controller has closed the connection";

/// Reason why there is no connection.
#[derive(Debug)]
pub(super) enum LinkError {
    /// The controller cannot be reached, or the connection has ended.
    Broken(String),
    /// Another controller answers at the address.
    OtherController(String),
    /// The controller has refused the host.
    Refused(Refusal),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(why) | Self::OtherController(why) => f.write_str(why),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

/// Reason why there is no connection to one address.
enum Failed {
    Broken(String),
    /// The controller there has another identity.
    Other,
}

/// A connection to the controller.
#[derive(Debug)]
pub(super) struct Link {
    stream: StreamOwned<ClientConnection, TcpStream>,
    inbox: Inbox,
    at: String,
}

impl Link {
    /// Connects to the controller, and checks that its fingerprint is one of the accepted ones. If
    /// its name resolves to several addresses, they are tried in turn, until one of them is that of
    /// the controller. `first` is the number of the address that is tried first; the others follow
    /// it in a circle.
    pub(super) fn open(
        controller: &HostPort,
        own: &Identity,
        accepted: &[Fingerprint],
        first: usize,
    ) -> Result<Self, LinkError> {
        let broken = |why: String| LinkError::Broken(format!("{controller}: {why}"));
        let mut addresses = controller.resolve(false).map_err(broken)?;
        let count = addresses.len();
        addresses.rotate_left(first % count.max(1));
        Self::open_any(controller, &addresses, own, accepted)
    }

    /// Connects to the first of these addresses of the controller that has an accepted fingerprint.
    pub(super) fn open_any(
        controller: &HostPort,
        addresses: &[SocketAddr],
        own: &Identity,
        accepted: &[Fingerprint],
    ) -> Result<Self, LinkError> {
        let at = controller.to_string();
        let settings = tls::of_host(own, accepted)
            .map_err(|error| LinkError::Broken(format!("{at}: {error}")))?;
        let (mut causes, mut is_other) = (Vec::new(), false);
        for address in addresses {
            let shown = match addresses {
                [_] => at.clone(),
                _ => format!("{at} ({})", address.ip()),
            };
            match Self::open_at(&shown, *address, &settings) {
                Ok(link) => return Ok(link),
                Err(Failed::Other) => {
                    is_other = true;
                    let accepted: Vec<String> = accepted.iter().map(ToString::to_string).collect();
                    causes.push(format!(
                        "{shown}: the controller there does not have the fingerprint {}: check the \
                         address; if the controller has another identity now, remove this host \
                         there by `srd control hosts remove`, remove the directory of [enrol], and \
                         enrol this host again with a new token",
                        accepted.join(" or ")
                    ));
                }
                Err(Failed::Broken(why)) => causes.push(format!("{shown}: {why}")),
            }
        }
        let causes = causes.join("; ");
        Err(if is_other { LinkError::OtherController(causes) } else { LinkError::Broken(causes) })
    }

    fn open_at(
        at: &str,
        address: SocketAddr,
        settings: &Arc<ClientConfig>,
    ) -> Result<Self, Failed> {
        let broken = |why: &dyn fmt::Display| Failed::Broken(why.to_string());
        let socket = connect(address).map_err(|error| broken(&unreachable(&error)))?;
        let connection = ClientConnection::new(Arc::clone(settings), tls::controller_name());
        let mut stream = StreamOwned::new(connection.map_err(|error| broken(&error))?, socket);
        shake(&mut stream, HANDSHAKE_WAIT_MAX).map_err(|error| {
            let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
            match cause {
                Some(cause) if tls::is_other_controller(cause) => Failed::Other,
                _ => broken(&format!("no TLS connection to a controller: {}", lost(&error))),
            }
        })?;
        let timeouts = stream.sock.set_read_timeout(Some(TICK));
        timeouts.map_err(|error| broken(&error))?;
        Ok(Self { stream, inbox: Inbox::new(CONTROLLER_BYTES_MAX), at: at.to_owned() })
    }

    fn broken(&self, why: &dyn fmt::Display) -> LinkError {
        LinkError::Broken(format!("{}: {why}", self.at))
    }

    /// Returns the address of this end.
    pub(super) fn local(&self) -> Result<IpAddr, LinkError> {
        let local = self.stream.sock.local_addr().map_err(|error| self.broken(&error))?;
        Ok(local.ip().to_canonical())
    }

    /// Returns the address of the controller.
    pub(super) fn address(&self) -> Result<SocketAddr, LinkError> {
        self.stream.sock.peer_addr().map_err(|error| self.broken(&error))
    }

    pub(super) fn send(&mut self, message: &FromHost) -> Result<(), LinkError> {
        let bytes = encode(message, HOST_BYTES_MAX).map_err(|error| self.broken(&error))?;
        let sent = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
        sent.map_err(|error| self.broken(&lost(&error)))
    }

    /// Returns the next message; `None` if none has arrived for [`TICK`].
    pub(super) fn receive(&mut self) -> Result<Option<FromController>, LinkError> {
        loop {
            match self.inbox.take().map_err(|error| self.broken(&error))? {
                Some(FromController::Refused(refusal)) => return Err(LinkError::Refused(refusal)),
                Some(message) => return Ok(Some(message)),
                None => {}
            }
            let mut bytes = [0; READ_BYTES];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(self.broken(&CLOSED)),
                Ok(count) => self.inbox.push(&bytes[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(None),
                    ErrorKind::Interrupted => {}
                    _ => return Err(self.broken(&lost(&error))),
                },
            }
        }
    }

    /// Waits for a message until `deadline`.
    pub(super) fn expect(&mut self, deadline: Instant) -> Result<FromController, LinkError> {
        loop {
            if let Some(message) = self.receive()? {
                return Ok(message);
            }
            if Instant::now() >= deadline {
                return Err(self.broken(&"the controller does not answer"));
            }
        }
    }
}

/// Returns the text for an error of a connection. The text of rustls for an end without a notice is
/// a link to its manual.
fn lost(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => CLOSED.to_owned(),
        _ => error.to_string(),
    }
}

/// Returns the text for an error of `connect`, with a remedy.
fn unreachable(error: &io::Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            "check the address of the controller, and the routes of this machine (`ip route`)"
        }
        ErrorKind::ConnectionRefused => {
            "start `srd control up --hosts` there, or correct the address and the port"
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            "check the address, and let firewalls pass TCP to this port"
        }
        _ => return error.to_string(),
    };
    format!("{error}: {remedy}")
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, CONNECT_WAIT_MAX)?;
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(WRITE_WAIT_MAX))?;
    Ok(socket)
}

/// A socket whose reads end at a time.
struct Until<'a> {
    socket: &'a mut TcpStream,
    end: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.read(bytes)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// Makes the handshake, which a server that sends few bytes cannot prolong beyond `limit`.
fn shake(stream: &mut StreamOwned<ClientConnection, TcpStream>, limit: Duration) -> io::Result<()> {
    let end = Instant::now() + limit;
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut Until { socket: &mut stream.sock, end })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit was one of each read, so one byte from time to time held the host for hours.
    #[test]
    fn regression_a_server_that_sends_few_bytes_does_not_prolong_the_handshake() {
        let own = Identity::draw().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let drips = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // The head of a record of a handshake, whose content comes byte by byte.
            let _ = stream.write_all(&[22, 3, 3, 64, 0]);
            while stream.write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let settings = tls::of_host(&own, &[own.fingerprint()]).unwrap();
        let connection = ClientConnection::new(settings, tls::controller_name()).unwrap();
        let mut stream = StreamOwned::new(connection, connect(at).unwrap());
        let error = shake(&mut stream, Duration::from_millis(200)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
        drop(stream);
        drips.join().unwrap();
    }

    /// The text was a link to the manual of rustls.
    #[test]
    fn regression_a_controller_that_has_ended_is_no_link_to_a_manual() {
        let own = Identity::draw().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let ends = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut hello = [0; 5];
            stream.read_exact(&mut hello).unwrap();
            // All bytes are read, because the kernel would send a reset otherwise.
            let length = usize::from(u16::from_be_bytes([hello[3], hello[4]]));
            stream.read_exact(&mut vec![0; length]).unwrap();
        });
        let controller = HostPort { host: at.ip().to_string(), port: at.port() };
        let accepted = [own.fingerprint()];
        let error = Link::open(&controller, &own, &accepted, 0).unwrap_err().to_string();
        ends.join().unwrap();
        assert!(error.ends_with(CLOSED) && !error.contains("://"), "{error}");
        let error = Link::open(&controller, &own, &accepted, 0).unwrap_err().to_string();
        assert!(error.contains("start `srd control up --hosts` there"), "{error}");
    }

    /// Returns the address of a server that makes the handshake with this identity, and answers
    /// with a message.
    fn serve(own: &Identity) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let own = own.clone();
        let settings = tls::of_controller(move || vec![own.clone()]).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = rustls::ServerConnection::new(Arc::clone(&settings)).unwrap();
                let mut stream = StreamOwned::new(connection, stream.unwrap());
                let pong = encode(&FromController::Pong, CONTROLLER_BYTES_MAX).unwrap();
                // A host that expects another identity ends the connection.
                let _ = stream.write_all(&pong).and_then(|()| stream.flush());
            }
        });
        at
    }

    /// An address that took the connection and was no controller, or another one, was the only one
    /// that the host tried.
    #[test]
    fn regression_an_address_that_is_no_controller_is_followed_by_the_next_one() {
        let [own, controller, other] = [(); 3].map(|()| Identity::draw().unwrap());
        // The kernel accepts connections of this listener.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = (silent.local_addr().unwrap(), silent);
        let named = HostPort { host: "ctl".to_owned(), port: 1 };
        let open = |addresses: &[SocketAddr]| {
            Link::open_any(&named, addresses, &own, &[controller.fingerprint()])
        };
        let [right, wrong] = [&controller, &other].map(serve);
        let mut link = open(&[silent.0, wrong, right]).unwrap();
        assert_eq!(link.receive().unwrap(), Some(FromController::Pong));
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = open(&[wrong, closed]).unwrap_err();
        assert!(matches!(error, LinkError::OtherController(_)), "{error:?}");
        let error = error.to_string();
        assert!(
            error.contains("the fingerprint") && error.contains("start `srd control up"),
            "{error}"
        );
    }

    #[test]
    fn regression_addresses_that_cannot_be_reached_have_a_remedy() {
        for (kind, says) in [
            (ErrorKind::HostUnreachable, "ip route"),
            (ErrorKind::NetworkUnreachable, "ip route"),
            (ErrorKind::TimedOut, "firewalls"),
        ] {
            let text = unreachable(&kind.into());
            assert!(text.contains(says), "{text}");
        }
    }
}
