//! libfabric's own `fi_pingpong` between two processes.

#![allow(clippy::unwrap_used, reason = "a test, with helpers")]

use std::fs::File;
use std::io::{Read, Seek};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Provider, is_here};

/// Longest run time of a ping-pong test and of each of its processes.
const LIMIT: Duration = Duration::from_secs(120);

/// Message sizes in bytes. They cover every protocol: in one packet, in several packets, read by
/// the receiver.
const SIZES: [&str; 5] = ["1", "4096", "20000", "65536", "1000000"];

fn pingpong(provider: &Provider, (kind, key): (&str, &str), arguments: &[&str]) -> Command {
    let mut command = Command::new("fi_pingpong");
    command.args(["-p", "srd", "-e", kind, "-I", "20", "-c"]).args(arguments);
    command.env("FI_PROVIDER_PATH", provider.library().parent().unwrap());
    command.env("FI_PROVIDER", "srd").env("FI_SRD_IFACE", "lo").env("FI_SRD_PATHS", "4");
    command.env("FI_LOG_LEVEL", "info").env("FI_LOG_PROV", "srd");
    if !key.is_empty() {
        command.env("FI_SRD_JOB_KEY", key);
    }
    command
}

/// Returns a free port below the range that the kernel assigns to connections. A client that
/// connects before its server listens could otherwise get the server's port as its own, and connect
/// to itself.
fn free_port() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + std::process::id().wrapping_mul(37).wrapping_add(next) % 10_000;
        if TcpListener::bind(("127.0.0.1", u16::try_from(port).unwrap())).is_ok() {
            return port.to_string();
        }
    }
}

/// A process and its output. It is killed if it takes too long, or when this value is dropped.
struct Running {
    child: Child,
    said: File,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let said = tempfile::tempfile().unwrap();
        let [out, error] = [&said, &said].map(|file| file.try_clone().unwrap());
        let child = command.stdin(Stdio::null()).stdout(out).stderr(error).spawn().unwrap();
        Self { child, said }
    }

    /// Waits for the end. Returns whether the process succeeded, and its output.
    fn finish(&mut self) -> (bool, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > LIMIT {
                self.child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut said = String::new();
        self.said.rewind().unwrap();
        self.said.read_to_string(&mut said).unwrap();
        (status.success(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a server and a client; the client tries until the server listens. Returns their outputs.
fn converse(provider: &Provider, how: (&str, &str), size: &str) -> (String, String) {
    let start = Instant::now();
    let run = |arguments: &[&str]| Running::start(pingpong(provider, how, arguments));
    let mut port = free_port();
    let mut server = run(&["-B", &port, "-S", size]);
    let client = loop {
        let (done, said) = run(&["-P", &port, "-S", size, "127.0.0.1"]).finish();
        if done {
            break said;
        }
        let waits = said.contains("Connection refused") && start.elapsed() < LIMIT;
        assert!(waits, "{size} bytes: {said}");
        if server.child.try_wait().unwrap().is_some() {
            // Another program took the port first.
            let (_, said) = server.finish();
            assert!(said.contains("already in use"), "{size} bytes: {said}");
            port = free_port();
            server = run(&["-B", &port, "-S", size]);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let (done, said) = server.finish();
    assert!(done, "{size} bytes: {said}");
    (said, client)
}

#[test]
fn messages_of_every_size_go_there_and_back_unharmed() {
    if !is_here("fi_pingpong", "libfabric-bin") {
        return;
    }
    let provider = Provider::new();
    for size in SIZES {
        converse(&provider, ("rdm", ""), size);
    }
}

#[test]
fn the_log_tells_what_a_closed_endpoint_has_moved() {
    if !is_here("fi_pingpong", "libfabric-bin") {
        return;
    }
    let (server, client) = converse(&Provider::new(), ("rdm", ""), "4096");
    // Twenty messages in each direction; the last may be unacknowledged when the counters are read.
    for said in [server, client] {
        let line =
            said.lines().find(|line| line.contains("closed the endpoint at fi_srd://127.0.0.1:"));
        let line = line.unwrap_or_else(|| panic!("nothing of the endpoint in {said}"));
        let bytes = line.split("received ").nth(1).and_then(|rest| rest.split(' ').nth(2));
        let bytes: u64 = bytes.unwrap().trim_end_matches(',').parse().unwrap();
        assert!(bytes >= 20 * 4096, "{line}");
    }
}

#[test]
fn and_encrypted() {
    if !is_here("fi_pingpong", "libfabric-bin") {
        return;
    }
    let key = "a5".repeat(32);
    converse(&Provider::new(), ("rdm", &key), "20000");
    converse(&Provider::new(), ("dgram", &key), "2000");
}

#[test]
fn datagrams_do_too() {
    if !is_here("fi_pingpong", "libfabric-bin") {
        return;
    }
    let provider = Provider::new();
    for size in ["1", "4096"] {
        converse(&provider, ("dgram", ""), size);
    }
}
