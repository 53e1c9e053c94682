//! Clusters of etcd, for tests: on the loopback interface, or in network namespaces.

#![allow(dead_code)] // each test program uses a part

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

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

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
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
        let member = |at: usize| Member {
            peer: format!("http://127.0.0.1:{}", free_port()),
            url: format!("{scheme}://127.0.0.1:{}", free_port()),
            namespace: None,
            data: directory.path().join(format!("m{at}")),
            process: None,
        };
        let members = (0..count).map(member).collect();
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
