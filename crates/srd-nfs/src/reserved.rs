//! Connections from ports that only root may bind. NFS servers accept calls from these ports alone,
//! unless an export is `insecure`, because they do not trust the identity that another user claims.
//!
//! Each port of [`PORTS`] is tried once. If this process may not use them, or all are in use, no
//! connection is made.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Source ports that the NFS client of Linux also uses. Ports of common services are below this
/// range.
pub const PORTS: RangeInclusive<u16> = 665..=1023;

/// A connection, or the reason why it was not made.
#[derive(Debug)]
pub(crate) enum Reserved {
    /// A connection from a port below 1024.
    Connected(TcpStream),
    /// This process has no right to a port below 1024 (CAP_NET_BIND_SERVICE).
    NotPermitted,
    /// All ports of the range are in use.
    Exhausted,
}

/// Checks that this process may use ports below 1024.
///
/// # Errors
/// A text for the user, if it may not use them or all are in use.
pub fn check() -> io::Result<()> {
    let mut last = None;
    for port in PORTS {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.expect("there are ports"))
}

/// Connects to `to` from one of `ports`, within the time `wait`.
///
/// # Errors
/// An error of the operating system, if the other side refuses or does not answer in time.
pub(crate) fn connect(
    to: SocketAddr,
    ports: RangeInclusive<u16>,
    wait: Duration,
) -> io::Result<Reserved> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Ports are used in turn, so that a port that was just released is not used again soon, and a
    // new connection probably takes another path.
    let first = NEXT.fetch_add(1, Ordering::Relaxed);
    let deadline = Instant::now() + wait;
    for (step, port) in in_turn(ports, first).enumerate() {
        match connect_from(port, to, deadline) {
            Ok(stream) => return Ok(Reserved::Connected(stream)),
            Err(Errno::ACCESS | Errno::PERM) if step == 0 => return Ok(Reserved::NotPermitted),
            // `ADDRNOTAVAIL` means that a connection between these two ports ended a moment ago.
            Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) => {}
            Err(error) => return Err(error.into()),
        }
        NEXT.fetch_add(1, Ordering::Relaxed);
    }
    Ok(Reserved::Exhausted)
}

/// Returns each port of a range once. `first` selects the port with which the order begins.
fn in_turn(ports: RangeInclusive<u16>, first: u16) -> impl Iterator<Item = u16> {
    let begin = ports.start() + first % (ports.end() - ports.start() + 1);
    (begin..=*ports.end()).chain(*ports.start()..begin)
}

fn connect_from(port: u16, to: SocketAddr, deadline: Instant) -> Result<TcpStream, Errno> {
    let (family, any): (_, IpAddr) = match to {
        SocketAddr::V4(_) => (AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into()),
        SocketAddr::V6(_) => (AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Allows ports of connections that ended within the last minute. Otherwise some hundred short
    // connections would use up the range.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddr::new(any, port))?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let mut asked = [PollFd::new(&socket, PollFlags::OUT)];
                let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
                match poll(&mut asked, Some(&left)) {
                    Ok(0) => return Err(Errno::TIMEDOUT),
                    Ok(_) => break,
                    // A signal interrupted the call: try again.
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error),
    }
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(TcpStream::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(60);

    /// Returns two consecutive free ports, found by listening at them.
    fn two_ports() -> (TcpListener, TcpListener, RangeInclusive<u16>) {
        loop {
            let first = TcpListener::bind("0.0.0.0:0").unwrap();
            let port = first.local_addr().unwrap().port();
            let Some(next) = port.checked_add(1) else { continue };
            if let Ok(second) = TcpListener::bind(("0.0.0.0", next)) {
                return (first, second, port..=next);
            }
        }
    }

    #[test]
    fn a_connection_comes_from_a_free_port_of_the_range_until_there_is_none() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let (first, second, ports) = two_ports();
        let all_in_use = connect(to, ports.clone(), WAIT).unwrap();
        assert!(matches!(all_in_use, Reserved::Exhausted), "{all_in_use:?}");
        drop(second);
        let connected = connect(to, ports.clone(), WAIT).unwrap();
        let Reserved::Connected(stream) = connected else { panic!("{connected:?}") };
        assert_eq!(stream.local_addr().unwrap().port(), *ports.end());
        assert_eq!(server.accept().unwrap().1.port(), *ports.end());
        drop(first);
    }

    /// Regression: when the counter of ports overflowed, some ports were tried twice and others not
    /// at all, so free ports counted as used.
    #[test]
    fn regression_each_port_is_tried_once_whatever_the_first_one_is() {
        for first in [0, 1, 358, 359, u16::MAX - 1, u16::MAX] {
            let mut ports: Vec<u16> = in_turn(PORTS, first).collect();
            assert_eq!(ports[0], PORTS.start() + first % 359);
            ports.sort_unstable();
            assert!(ports.into_iter().eq(PORTS), "{first}");
        }
    }

    #[test]
    fn a_refusal_is_the_servers() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        drop(server);
        let (first, _second, ports) = two_ports();
        drop(first);
        let error = connect(to, ports, WAIT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
