//! The machine's resolver: its address, and a socket for each query. The kernel draws a port for
//! each socket, and an answer has to reach that port (RFC 5452).
//!
//! `resolv.conf` is read again when it has changed, and an unreachable server is tried again,
//! because a machine may get its network, its VPN or its Wi-Fi after this process has started. The
//! file and the server are checked before a query, at most once in `AGAIN`. A server that has
//! answered nothing for `SILENCE` is replaced by the next server of the file.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::io::Errno;
use srd_proto::time::{Duration, Instant};

const AGAIN: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(5);
/// Maximum number of servers of the file that are used (resolv.conf(5)).
const SERVERS_MAX: usize = 3;
/// Maximum size of an answer in bytes.
const ANSWER_BYTES_MAX: usize = 4096;

/// Inode, modification time and size, which show whether a file has changed.
type Stamp = (u64, Option<SystemTime>, u64);

/// The machine's resolver.
#[derive(Debug)]
pub(super) struct Nameserver {
    file: PathBuf,
    port: u16,
    stamp: Option<Stamp>,
    servers: Vec<IpAddr>,
    /// Index of the current server.
    at: usize,
    server: Option<SocketAddr>,
    looked: Option<Instant>,
    /// Time of the first query since the last answer; `None` if no query waits for an answer.
    silent: Option<Instant>,
    /// The last problem that was logged; empty if the server can be reached.
    said: String,
}

/// Opens a socket that is connected to a server, at a new port that the kernel draws.
fn open(server: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Receives a message; `None` if there is no message now.
///
/// # Errors
/// An error if the query of this socket could not be delivered.
pub(super) fn receive(socket: &UdpSocket) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = [0; ANSWER_BYTES_MAX];
    match socket.recv(&mut bytes) {
        Ok(length) => Ok(Some(bytes[..length].to_vec())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

impl Nameserver {
    /// Creates the resolver from the servers of a file in the form of `/etc/resolv.conf`, at this
    /// port.
    pub(super) fn new(file: &Path, port: u16) -> Self {
        Self {
            file: file.to_owned(),
            port,
            stamp: None,
            servers: Vec::new(),
            at: 0,
            server: None,
            looked: None,
            silent: None,
            said: String::new(),
        }
    }

    /// Returns the address of the current server; `None` if no server can be reached.
    pub(super) fn server(&self) -> Option<SocketAddr> {
        self.server
    }

    /// Checks the file and the current server before a query, and selects another server if
    /// necessary. Returns whether the server may have changed.
    pub(super) fn follow(&mut self, now: Instant) -> bool {
        if self.looked.is_some_and(|looked| now.since(looked) < AGAIN) {
            return false;
        }
        self.looked = Some(now);
        let stamp = stamp(&self.file);
        let is_silent = self.silent.is_some_and(|since| now.since(since) >= SILENCE);
        if stamp != self.stamp {
            let text = fs::read_to_string(&self.file).unwrap_or_default();
            (self.servers, self.at, self.stamp) = (servers(&text), 0, stamp);
        } else if is_silent || self.server.is_none() {
            self.at = (self.at + 1) % self.servers.len().max(1);
        } else {
            return false;
        }
        self.silent = None;
        self.server = self.reached();
        true
    }

    /// Returns the current server of the list, if the kernel has a route to it.
    fn reached(&mut self) -> Option<SocketAddr> {
        let file = self.file.display();
        let Some(server) = self.servers.get(self.at).copied() else {
            self.say(format!(
                "{file} names no resolver: instances resolve names of their cloud only"
            ));
            return None;
        };
        let server = SocketAddr::new(server, self.port);
        match open(server) {
            Ok(_) => {
                self.said.clear();
                Some(server)
            }
            Err(error) => {
                self.say(format!("the resolver {}: {error}", server.ip()));
                None
            }
        }
    }

    /// Logs a problem unless the last logged problem was the same.
    fn say(&mut self, what: String) {
        if self.said != what {
            tracing::warn!("{what}");
            self.said = what;
        }
    }

    /// Sends a query. Returns the socket for the answer; `None` if the query could not be sent. An
    /// unreachable server is replaced at a later query.
    pub(super) fn ask(&mut self, now: Instant, query: &[u8]) -> Option<UdpSocket> {
        let server = self.server?;
        let sent = open(server).and_then(|socket| socket.send(query).map(|_| socket));
        match sent {
            Ok(socket) => {
                self.silent.get_or_insert(now);
                Some(socket)
            }
            Err(error) if is_passing(&error) => None,
            Err(error) => {
                self.say(format!("the resolver {}: {error}", server.ip()));
                self.server = None;
                None
            }
        }
    }

    /// Records that the server has answered.
    pub(super) fn heard(&mut self) {
        self.silent = None;
    }
}

/// Whether an error is temporary: a queue is full, or all descriptors or ports are in use.
fn is_passing(error: &io::Error) -> bool {
    let used_up = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::ADDRINUSE, Errno::NOBUFS];
    error.raw_os_error().map(Errno::from_raw_os_error).is_some_and(|of| used_up.contains(&of))
}

fn stamp(file: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(file).ok()?;
    Some((found.ino(), found.modified().ok(), found.len()))
}

fn servers(text: &str) -> Vec<IpAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| *word == "nameserver")?;
        // Text behind the address is ignored, as the C library does.
        words.next()?.parse().ok()
    };
    text.lines().filter_map(server).take(SERVERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn heard(server: &UdpSocket) -> Vec<u8> {
        server.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let mut bytes = [0; 64];
        let (length, _) = server.recv_from(&mut bytes).unwrap();
        bytes[..length].to_vec()
    }

    #[test]
    fn the_file_names_at_most_three_servers() {
        let text = "# x\nnameserver nonsense\n nameserver\t10.0.0.2 \nnameserver ::1\noptions a\n\
                    nameserver 10.0.0.3\nnameserver 10.0.0.4\n";
        let expected: [IpAddr; 3] =
            ["10.0.0.2", "::1", "10.0.0.3"].map(|server| server.parse().unwrap());
        assert_eq!(servers(text), expected);
        assert!(servers("nameserver\nnameserver10.0.0.2\n").is_empty());
        // A regression: an address with a comment behind it was ignored.
        assert_eq!(servers("nameserver 10.0.0.2 # from DHCP\n"), [expected[0]]);
    }

    /// Regression: a file that was created after the start was never read.
    #[test]
    fn regression_a_resolver_that_is_there_later_is_asked() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let mut nameserver = Nameserver::new(&file, port);
        nameserver.follow(NOW);
        assert!(nameserver.ask(NOW, b"one").is_none() && nameserver.server().is_none());
        fs::write(&file, "nameserver 127.0.0.1\n").unwrap();
        assert!(!nameserver.follow(NOW), "it is looked for once in a while only");
        let later = NOW + AGAIN;
        assert!(nameserver.follow(later) && nameserver.ask(later, b"two").is_some());
        assert_eq!(heard(&server), b"two");
    }

    #[test]
    fn regression_a_changed_file_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        let first = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let second = UdpSocket::bind(("127.0.0.2", port)).unwrap();
        fs::write(&file, "nameserver 127.0.0.1\n").unwrap();
        let mut nameserver = Nameserver::new(&file, port);
        assert!(nameserver.follow(NOW) && nameserver.ask(NOW, b"one").is_some());
        assert_eq!(heard(&first), b"one");
        assert!(!nameserver.follow(NOW + AGAIN), "nothing has changed");
        // Programs replace the file in this way: a new file takes its name.
        let new = directory.path().join("new");
        fs::write(&new, "nameserver 127.0.0.2\n").unwrap();
        fs::rename(&new, &file).unwrap();
        let later = NOW + AGAIN.times(2);
        assert!(nameserver.follow(later) && nameserver.ask(later, b"two").is_some());
        assert_eq!(heard(&second), b"two");
    }

    #[test]
    fn regression_a_server_that_cannot_be_reached_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        // The kernel refuses a connection to the first server.
        fs::write(&file, "nameserver 255.255.255.255\nnameserver 127.0.0.1\n").unwrap();
        let mut nameserver = Nameserver::new(&file, port);
        nameserver.follow(NOW);
        assert!(nameserver.server().is_none() && nameserver.ask(NOW, b"one").is_none());
        assert!(nameserver.said.contains("255.255.255.255"));
        let later = NOW + AGAIN;
        assert!(nameserver.follow(later) && nameserver.ask(later, b"two").is_some());
        assert_eq!(heard(&server), b"two");
    }

    /// A forged answer to a guessed port has no effect.
    #[test]
    fn regression_each_question_leaves_from_a_port_that_the_kernel_draws() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        fs::write(&file, "nameserver 127.0.0.1\n").unwrap();
        let mut nameserver = Nameserver::new(&file, server.local_addr().unwrap().port());
        nameserver.follow(NOW);
        let sockets: Vec<_> = (0..100).map(|_| nameserver.ask(NOW, b"one").unwrap()).collect();
        let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
        let mut ports: Vec<u16> = sockets.iter().map(port).collect();
        let in_a_row = ports.windows(2).filter(|two| two[0].abs_diff(two[1]) == 1).count();
        assert!(in_a_row < 10, "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), sockets.len());
    }

    #[test]
    fn a_silent_server_makes_place_for_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        fs::write(&file, "nameserver 127.0.0.1\nnameserver 127.0.0.2\n").unwrap();
        let mut nameserver = Nameserver::new(&file, port);
        let asked = |nameserver: &mut Nameserver, now| {
            nameserver.follow(now);
            assert!(nameserver.ask(now, b"one").is_some());
            nameserver.server().unwrap().ip().to_string()
        };
        assert_eq!(asked(&mut nameserver, NOW), "127.0.0.1");
        let almost = NOW + SILENCE - Duration::from_nanos(1);
        assert_eq!(asked(&mut nameserver, almost), "127.0.0.1");
        assert_eq!(asked(&mut nameserver, almost + AGAIN), "127.0.0.2");
        assert_eq!(asked(&mut nameserver, almost + SILENCE + AGAIN), "127.0.0.1");
    }
}
