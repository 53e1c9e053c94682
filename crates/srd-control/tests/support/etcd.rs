//! Clusters of etcd, for tests: on the loopback interface, or in network namespaces.

#![allow(dead_code)] // each test program uses a part

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a member that starts.
const START_MAX: Duration = Duration::from_secs(120);
/// Longest wait for one answer of a member.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Certificates for the connections to members.
pub(crate) struct ServerTls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Authority of the certificates of clients.
    pub(crate) authority: PathBuf,
}

/// A cluster, whose members are killed when this value is dropped.
pub(crate) struct Cluster {
    members: Vec<Member>,
    /// Directory with the data of each member, `m0` for the first one.
    pub(crate) directory: tempfile::TempDir,
    tls: Option<ServerTls>,
}

struct Member {
    peer: String,
    /// The address for clients.
    url: String,
    /// Network namespace; `None`: the one of the test.
    namespace: Option<String>,
    data: PathBuf,
    process: Option<Child>,
}

/// The place of a member in a network namespace.
pub(crate) struct Location {
    pub(crate) namespace: String,
    pub(crate) address: String,
    /// Directory of its data.
    pub(crate) data: PathBuf,
}

/// Returns a free port below the range that the kernel assigns to connections. A client that
/// connects before the member listens could otherwise get the port of the member as its own,
/// connect to itself, and take the port from the member.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + std::process::id().wrapping_mul(37).wrapping_add(next) % 10_000;
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns the ports of this many members, for members and for clients. No two are equal.
fn free_ports(members: usize) -> Vec<[u16; 2]> {
    (0..members).map(|_| [0; 2].map(|_| free_port())).collect()
}

impl Cluster {
    /// Starts a cluster with this many members; `None` if this machine has no etcd.
    pub(crate) fn start(count: usize) -> Option<Self> {
        Self::start_with(count, None)
    }

    /// Starts a cluster whose members use TLS, and need certificates of clients.
    pub(crate) fn start_with(count: usize, tls: Option<ServerTls>) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let member = |(at, [peer, client]): (usize, [u16; 2])| Member {
            peer: format!("http://127.0.0.1:{peer}"),
            url: format!("{scheme}://127.0.0.1:{client}"),
            namespace: None,
            data: directory.path().join(format!("m{at}")),
            process: None,
        };
        let members = free_ports(count).into_iter().enumerate().map(member).collect();
        Self { members, directory, tls }.begin()
    }

    /// Starts a cluster with a member at each of these places; `None` if this machine has no etcd.
    pub(crate) fn start_at(places: Vec<Location>) -> Option<Self> {
        let member = |Location { namespace, address, data }| Member {
            peer: format!("http://{address}:2380"),
            url: format!("http://{address}:2379"),
            namespace: Some(namespace),
            data,
            process: None,
        };
        let members = places.into_iter().map(member).collect();
        Self { members, directory: tempfile::tempdir().unwrap(), tls: None }.begin()
    }

    fn begin(mut self) -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            println!("skipped: no etcd (apt-get install etcd-server)");
            return None;
        }
        (0..self.members.len()).for_each(|at| self.revive(at));
        Some(self)
    }

    /// Whether the process of a member runs.
    pub(crate) fn is_running(&mut self, at: usize) -> bool {
        let process = self.members[at].process.as_mut();
        process.is_some_and(|process| process.try_wait().unwrap().is_none())
    }

    /// Addresses for clients.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// Starts a member, with the data that it has.
    pub(crate) fn revive(&mut self, at: usize) {
        let name = |at: usize| format!("m{at}");
        let all = self.members.iter().enumerate();
        let all: Vec<_> = all.map(|(at, of)| format!("{}={}", name(at), of.peer)).collect();
        let log = File::create(self.directory.path().join(format!("{}.log", name(at)))).unwrap();
        let member = &mut self.members[at];
        let mut command = match &member.namespace {
            Some(namespace) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}")).arg("etcd");
                command
            }
            None => Command::new("etcd"),
        };
        command.args(["--name", &name(at), "--logger", "zap", "--log-level", "error"]);
        command.arg("--data-dir").arg(&member.data);
        command.args(["--listen-peer-urls", &member.peer]);
        command.args(["--initial-advertise-peer-urls", &member.peer]);
        command.args(["--listen-client-urls", &member.url]);
        command.args(["--advertise-client-urls", &member.url]);
        command.args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"]);
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(&tls.certificate).arg("--key-file").arg(&tls.key);
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.authority);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        member.process = Some(command.spawn().unwrap());
    }

    /// Waits until a member has caught up with the majority of the members. Its connections to
    /// clients have no TLS, and its namespace is the one of the caller.
    pub(crate) fn wait_until_healthy(&self, at: usize) {
        let address = self.members[at].url.strip_prefix("http://").unwrap();
        let answer = || -> io::Result<String> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let began = Instant::now();
        while !answer().is_ok_and(|answer| answer.contains("\"health\":\"true\"")) {
            assert!(began.elapsed() < START_MAX, "the member {at} of etcd does not start");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Kills a member.
    pub(crate) fn kill(&mut self, at: usize) {
        if let Some(mut process) = self.members[at].process.take() {
            let _ = process.kill();
            process.wait().unwrap();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|at| self.kill(at));
    }
}
