//! Clusters of etcd on the loopback interface, for tests.

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
    process: Option<Child>,
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
        let version = Command::new("etcd").arg("--version").output();
        if version.is_err() {
            println!("skipped: no etcd (apt-get install etcd-server)");
            return None;
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        let member = |_| Member {
            peer: format!("http://127.0.0.1:{}", free_port()),
            url: format!("{scheme}://127.0.0.1:{}", free_port()),
            process: None,
        };
        let members = (0..count).map(member).collect();
        let mut cluster = Self { members, directory: tempfile::tempdir().unwrap(), tls };
        (0..count).for_each(|at| cluster.revive(at));
        Some(cluster)
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
        let mut command = Command::new("etcd");
        command.args(["--name", &name(at), "--logger", "zap", "--log-level", "error"]);
        command.arg("--data-dir").arg(self.directory.path().join(name(at)));
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
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|at| self.kill(at));
    }
}
