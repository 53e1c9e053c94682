//! libfabric's own `fi_pingpong` between two processes.

#![allow(clippy::unwrap_used, reason = "a test, with helpers")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{Provider, is_here};

/// Sizes at which messages change their way: within a packet, in several, read by the receiver.
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
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn free_port() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    port.to_string()
}

/// What a child said, and whether it succeeded; it is ended if it takes too long.
fn finish(mut child: Child) -> (bool, String) {
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut said = String::new();
    let out = BufReader::new(child.stdout.take().unwrap());
    out.lines().map_while(Result::ok).for_each(|line| said += &format!("{line}\n"));
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status.success(), said)
}

/// Runs a server and a client; the client tries until the server listens. Returns what they said.
fn converse(provider: &Provider, how: (&str, &str), size: &str) -> (String, String) {
    let port = free_port();
    let server = pingpong(provider, how, &["-B", &port, "-S", size]).spawn().unwrap();
    let start = Instant::now();
    let client = loop {
        let mut client = pingpong(provider, how, &["-P", &port, "-S", size, "127.0.0.1"]);
        let (done, said) = finish(client.spawn().unwrap());
        if done {
            break said;
        }
        let waits = said.contains("Connection refused") && start.elapsed().as_secs() < 20;
        assert!(waits, "{size} bytes: {said}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let (done, said) = finish(server);
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
    // Twenty messages to and fro, acknowledged or not when the last has been read.
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
