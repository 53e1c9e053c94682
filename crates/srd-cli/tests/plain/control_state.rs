//! `srd control up --state` and `srd control store`: servers that are killed, full disks, and
//! servers beside each other on etcd.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::api::{Endpoint, element};
use crate::etcd::Cluster;

/// Longest wait for the acknowledgements of requests.
const PATIENCE: Duration = Duration::from_secs(120);

fn srd() -> Command {
    Command::new(env!("CARGO_BIN_EXE_srd"))
}

/// A server that is killed when this value is dropped.
struct Server {
    process: Child,
    endpoint: Endpoint,
    _directory: tempfile::TempDir,
}

impl Server {
    fn start(state: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key.env");
        let mut command = srd();
        command.args(["control", "up", "--state-only", "--listen", "127.0.0.1:0", "--state"]);
        command.arg(state).arg("--key-file").arg(&key);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("instances")), "the server has ended");
        let endpoint = Endpoint::read(&fs::read_to_string(key).unwrap());
        Self { process, endpoint, _directory: directory }
    }

    fn call(&self, action: &str, parameters: &str) -> String {
        let (status, body) = self.endpoint.send(action, parameters).unwrap();
        assert_eq!(status, 200, "{action}: {body}");
        body
    }

    /// Kills the server by SIGKILL.
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(arguments: &[&str]) -> Output {
    srd().args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Identifiers of all VPCs.
fn vpcs(endpoint: &Endpoint) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let mut page = String::new();
    loop {
        let (status, body) = endpoint.send("DescribeVpcs", &page).unwrap();
        assert_eq!(status, 200, "{body}");
        let all = body.split("<vpcId>").skip(1).map(|rest| rest.split('<').next().unwrap());
        ids.extend(all.map(str::to_owned));
        if !body.contains("<nextToken>") {
            return ids;
        }
        page = format!("NextToken={}", element(&body, "nextToken"));
    }
}

#[test]
fn a_server_that_is_killed_has_its_state_and_its_key_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let state = path.to_str().unwrap();
    let mut first = Server::start(state);
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    // Requests are in work when the server is killed.
    let client = |endpoint: Endpoint| {
        let mut made = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            match endpoint.send("CreateVpc", "CidrBlock=10.0.0.0/16") {
                Ok((200, body)) => {
                    made.insert(element(&body, "vpcId"));
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Ok((status, body)) => panic!("{status}: {body}"),
                Err(_) => break,
            }
        }
        made
    };
    let made = thread::scope(|scope| {
        let (client, endpoint) = (&client, &first.endpoint);
        let clients = [0; 3].map(|_| scope.spawn(move || client(endpoint.clone())));
        let began = Instant::now();
        while acknowledged.load(Ordering::Relaxed) < 30 && began.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(5));
        }
        first.process.kill().unwrap();
        stop.store(true, Ordering::Relaxed);
        let made = clients.map(|client| client.join().unwrap());
        made.into_iter().flatten().collect::<BTreeSet<String>>()
    });
    first.kill();
    assert!(made.len() > 3, "{made:?}");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    let second = Server::start(state);
    assert_eq!(second.endpoint.key, first.endpoint.key);
    let there = vpcs(&second.endpoint);
    assert!(made.is_subset(&there), "acknowledged changes are lost");
    // A default VPC, and at most one VPC for each request in work.
    assert!(there.len() <= made.len() + 4, "{} of {}", made.len(), there.len());

    let other =
        run(&["control", "up", "--state", state, "--state-only", "--listen", "127.0.0.1:0"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(error(&other).contains("used by another controller"), "{}", error(&other));
}

#[test]
fn regression_options_of_the_state_are_checked() {
    let code = |arguments: &[&str]| {
        let output = run(&[&["control", "up", "--listen", "127.0.0.1:0"][..], arguments].concat());
        (output.status.code().unwrap(), error(&output))
    };
    let (status, text) = code(&["--trial", "--state", "x.db"]);
    assert!(status == 2 && text.contains("--trial"), "{text}");
    let (status, text) = code(&["--state", "https://127.0.0.1:1", "--state-only"]);
    assert!(status == 2 && text.contains("--etcd-ca"), "{text}");
    // Regression: the certificates were ignored, and the state went over plain TCP.
    let etcd = ["--state", "http://127.0.0.1:1", "--state-only"];
    let (status, text) = code(&[&etcd[..], &["--etcd-cert", "a", "--etcd-key", "b"]].concat());
    assert!(status == 2 && text.contains("--etcd-ca"), "{text}");
    let (status, text) = code(&[&etcd[..], &["--etcd-ca", "a"]].concat());
    assert!(status == 2 && text.contains("https://"), "{text}");
    let (status, text) = code(&["--state", "http://127.0.0.1:1,x", "--state-only"]);
    assert!(status == 2 && text.contains("`x`"), "{text}");
    let (status, text) = code(&["--state", "/missing/x.db", "--state-only"]);
    assert!(status == 1 && text.contains("/missing/x.db"), "{text}");
    let (status, text) = code(&["--state", "http://127.0.0.1:1", "--state-only"]);
    assert!(status == 1 && text.contains("etcd"), "{text}");
    if rustix::process::geteuid().is_root() {
        // TEST-NET-1; nothing is sent.
        let members = "http://127.0.0.1:1,http://192.0.2.1:1";
        for user_data in [&[][..], &["--user-data"]] {
            let (status, text) = code(&[&["--state", members][..], user_data].concat());
            assert!(status == 2 && text.contains("http://192.0.2.1:1 has no TLS"), "{text}");
        }
    }
}

/// The server runs with a file system of 16 MiB, which another file fills.
#[test]
fn a_full_disk_is_an_error_and_nothing_acknowledged_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let small = directory.path().join("small");
    fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=16m", "none"]).arg(&small);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        println!("skipped: no tmpfs can be mounted");
        return;
    }
    let _mounted = Mounted(&small);
    let state = small.join("state.db");
    let state = state.to_str().unwrap();
    let mut server = Server::start(state);
    let mut made = vpcs(&server.endpoint);
    // All space is taken.
    let filler = small.join("filler");
    let _ = fs::write(&filler, vec![1; 16 << 20]);
    let description = "x".repeat(200);
    let create = format!("GroupDescription={description}&GroupName=");
    let mut groups = BTreeSet::new();
    let mut refused = 0;
    for number in 0..4000 {
        let parameters = format!("{create}{number}");
        match server.endpoint.send("CreateSecurityGroup", &parameters).unwrap() {
            (200, body) => drop(groups.insert(element(&body, "groupId"))),
            (status, body) => {
                assert_eq!(status, 500, "{body}");
                assert!(body.contains("InternalError"), "{body}");
                refused += 1;
                if refused == 3 {
                    break;
                }
            }
        }
    }
    assert_eq!(refused, 3, "the disk was not full after {} groups", groups.len());
    // Reads go on, and so do writes when there is space.
    assert_eq!(vpcs(&server.endpoint), made);
    fs::remove_file(&filler).unwrap();
    made.insert(element(&server.call("CreateVpc", "CidrBlock=10.0.0.0/16"), "vpcId"));
    server.kill();
    let again = Server::start(state);
    assert_eq!(vpcs(&again.endpoint), made);
    let (_, body) = again.endpoint.send("DescribeSecurityGroups", "MaxResults=1000").unwrap();
    let known = groups.iter().filter(|id| body.contains(id.as_str())).count();
    assert!(known == groups.len() || known + made.len() == 1000, "{known} of {}", groups.len());
}

/// The file with the certificate of the authority stayed old until the next start of the server.
#[test]
fn regression_the_certificate_of_the_authority_is_written_as_soon_as_there_is_space() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let small = directory.path().join("small");
    fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&small);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        println!("skipped: no tmpfs can be mounted");
        return;
    }
    let _mounted = Mounted(&small);
    let (ca, admin, log) = (small.join("ca.pem"), path("admin.sock"), path("log"));
    let mut command = srd();
    command.args(["control", "up", "--state-only", "--listen", "127.0.0.1:0", "--tls"]);
    command.args(["--state", &path("state.db"), "--key-file", &path("key.env")]);
    command.args(["--admin", &admin, "--ca-file"]).arg(&ca);
    command.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    let mut process = Running(command.spawn().unwrap());
    let output = BufReader::new(process.0.stdout.take().unwrap());
    assert!(output.lines().map_while(Result::ok).any(|line| line.starts_with("admin:")));
    let former = fs::read_to_string(&ca).unwrap();
    let filler = small.join("filler");
    let _ = fs::write(&filler, vec![1; 2 << 20]);
    let rotated = run(&["control", "authority", "rotate", "--admin", &admin]);
    assert!(rotated.status.success(), "{}", error(&rotated));
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let until = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < until, "{what}: {}", fs::read_to_string(&log).unwrap());
            thread::sleep(Duration::from_millis(50));
        }
    };
    let said = |what: &str| fs::read_to_string(&log).unwrap().contains(what);
    wait("the failure", &|| said("; the server tries again"));
    assert_eq!(fs::read_to_string(&ca).unwrap(), former);
    fs::remove_file(&filler).unwrap();
    wait("the certificate", &|| fs::read_to_string(&ca).unwrap() != former);
    wait("the report", &|| said("is published now"));
}

/// A process that is killed when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file system that is unmounted when this value is dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).output();
    }
}

#[test]
fn a_state_moves_between_files_and_etcd() {
    let Some(cluster) = Cluster::start(1) else { return };
    let etcd = cluster.urls().join(",");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let mut first = Server::start(&path("a.db"));
    first.call("CreateVpc", "CidrBlock=10.7.0.0/16");
    let made = vpcs(&first.endpoint);
    let copy = |from: &str, to: &str| run(&["control", "store", "copy", from, to]);
    let busy = copy(&path("a.db"), &etcd);
    assert!(error(&busy).contains("used by another controller"), "{}", error(&busy));
    first.kill();
    wait_for_cluster(&etcd);
    let copied = copy(&path("a.db"), &etcd);
    assert!(copied.status.success(), "{}", error(&copied));
    let second = Server::start(&etcd);
    assert_eq!(second.endpoint.key, first.endpoint.key);
    assert_eq!(vpcs(&second.endpoint), made);
    drop(second);
    assert!(copy(&etcd, &path("b.db")).status.success());
    let third = Server::start(&path("b.db"));
    assert_eq!(vpcs(&third.endpoint), made);
    drop(third);
    let full = copy(&path("a.db"), &path("b.db"));
    assert!(error(&full).contains("contains a state"), "{}", error(&full));
    let missing = copy(&path("missing.db"), &path("c.db"));
    assert!(error(&missing).contains("does not exist"), "{}", error(&missing));
    assert_eq!(copy(&path("a.db"), &path("a.db")).status.code(), Some(2));
}

/// Three members and two servers: a member is killed, then a server, and clients go on.
#[test]
fn servers_beside_each_other_on_etcd_lose_nothing() {
    let Some(mut cluster) = Cluster::start(3) else { return };
    let etcd = cluster.urls().join(",");
    wait_for_cluster(&etcd);
    let (mut a, b) = (Server::start(&etcd), Server::start(&etcd));
    assert_eq!(a.endpoint.key, b.endpoint.key);
    let mut made = vpcs(&a.endpoint);
    assert_eq!(vpcs(&b.endpoint), made);
    let mut unknown = 0;
    let mut create =
        |server: &Server| match server.endpoint.send("CreateVpc", "CidrBlock=10.0.0.0/16") {
            Ok((200, body)) => drop(made.insert(element(&body, "vpcId"))),
            Ok((status, body)) => {
                assert!(status == 500 || status == 503, "{status}: {body}");
                unknown += 1;
            }
            Err(error) => panic!("{error}"),
        };
    for at in 0..3 {
        cluster.kill(at);
        for _ in 0..5 {
            create(&a);
            create(&b);
        }
        cluster.revive(at);
        cluster.wait_until_healthy(at);
    }
    a.kill();
    for _ in 0..5 {
        create(&b);
    }
    let a = Server::start(&etcd);
    let (of_a, of_b) = (vpcs(&a.endpoint), vpcs(&b.endpoint));
    assert_eq!(of_a, of_b);
    assert!(made.is_subset(&of_a), "acknowledged changes are lost");
    assert!(of_a.len() <= made.len() + unknown, "{} of {}", made.len(), of_a.len());
    assert!(made.len() > 20, "{} VPCs, {unknown} refused", made.len());
}

/// Waits until a cluster has a leader.
fn wait_for_cluster(etcd: &str) {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("empty.db");
    let until = Instant::now() + Duration::from_secs(60);
    while !run(&["control", "store", "copy", etcd, to.to_str().unwrap()]).status.success() {
        assert!(Instant::now() < until, "the cluster does not start");
    }
}
