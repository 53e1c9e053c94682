//! `srd perf` between two processes over loopback: checks that it works, not how fast.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

/// Duration of each measurement. The second value is for a second attempt if no data arrived,
/// because the threads had not begun on a busy machine.
const TIMES: [&str; 2] = ["300ms", "5s"];

/// A server process at an address that no other server of the tests has. The process ends when the
/// value is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    public_key: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a loopback address that no other server of the tests has. SRD needs consecutive UDP
/// ports that begin at the port of the TCP listener. They are free if no other program uses the
/// address.
fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < 16, "addresses of this process are used up");
    let [_, a, b, c] = ((std::process::id() << 4) | u32::from(number)).to_be_bytes();
    Ipv4Addr::new(127, a, b, c)
}

fn server(extra: &[&str]) -> Server {
    let own = own_address().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_srd"))
        .args(["perf", "server", "--bind", &own, "--port", "0"])
        .args(extra)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = |begin: &str| {
        let line = lines.next().expect("the server has ended").unwrap();
        line.strip_prefix(begin).unwrap_or_else(|| panic!("{line}")).to_owned()
    };
    let address = line("srd perf server on ").parse().unwrap();
    let public_key = line("public key ");
    std::thread::spawn(move || lines.for_each(drop));
    Server { child, address, public_key }
}

fn client(server: &Server, extra: &[&str]) -> Output {
    let (host, port) = (server.address.ip().to_string(), server.address.port().to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(["perf", "client", &host, "--port", &port]).args(extra).output().unwrap()
}

fn measure(server: &Server, extra: &[&str]) -> serde_json::Value {
    for time in TIMES {
        let output =
            client(server, &[&["--time", time, "--paths", "4", "--json", "-"], extra].concat());
        if output.status.success() {
            return serde_json::from_slice(&output.stdout).unwrap();
        }
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("nothing arrived at"), "{extra:?}: {error}");
    }
    panic!("{extra:?}: nothing arrived in {TIMES:?}");
}

fn bulk_is_complete(result: &serde_json::Value) {
    assert!(result["gbps"].as_f64().unwrap() > 0.0, "{result}");
    assert!(result["cpu_s_per_gb"].as_f64().unwrap() > 0.0, "{result}");
    assert!(result["rtt_us"].is_null());
    assert!(result["intervals"].is_array());
}

fn rr_is_complete(result: &serde_json::Value) {
    let at = |name: &str| result["rtt_us"][name].as_f64().unwrap();
    assert!(at("p50") > 0.0 && at("p50") <= at("p99") && at("p99") <= at("p999"), "{result}");
    assert!(at("p999") <= at("p9999") && at("p9999") <= at("max") * 1.001, "{result}");
}

#[test]
fn tcp_and_udp_in_both_modes() {
    let server = server(&[]);
    for transport in ["tcp", "udp"] {
        let bulk = measure(&server, &["--transport", transport, "--streams", "2"]);
        bulk_is_complete(&bulk);
        assert_eq!(bulk["config"]["transport"], transport);
        assert_eq!(bulk["retransmitted_share"].is_number(), transport == "tcp");
        rr_is_complete(&measure(&server, &["--transport", transport, "--mode", "rr"]));
    }
}

#[test]
fn srd_plain_in_both_modes() {
    let server = server(&[]);
    let bulk = measure(&server, &["--encrypt", "off", "--streams", "3"]);
    bulk_is_complete(&bulk);
    assert!(bulk["retransmitted_share"].is_number());
    rr_is_complete(&measure(&server, &["--encrypt", "off", "--mode", "rr"]));
    rr_is_complete(&measure(&server, &["--encrypt", "off", "--mode", "rr", "--busy-poll"]));
}

#[test]
fn workers_of_both_ends_need_not_be_as_many() {
    let server = server(&["--workers", "2"]);
    for (workers, keyed) in [("1", false), ("3", false), ("3", true)] {
        let key = server.public_key.clone();
        let protected = if keyed { ["--peer-key", &key] } else { ["--encrypt", "off"] };
        let bulk = measure(&server, &[&["--workers", workers], &protected[..]].concat());
        bulk_is_complete(&bulk);
        assert_eq!(bulk["config"]["workers"].to_string(), workers);
        assert_eq!(bulk["server_workers"], 2);
    }
    rr_is_complete(&measure(&server, &["--encrypt", "off", "--mode", "rr"]));
}

#[test]
fn srd_encrypted_by_public_key() {
    let server = server(&[]);
    let bulk = measure(&server, &["--peer-key", &server.public_key.clone()]);
    bulk_is_complete(&bulk);
    assert_eq!(bulk["config"]["protection"], "public_key");
}

#[test]
fn srd_encrypted_by_job_key() {
    let key = "0123456789abcdef".repeat(4);
    let server = server(&["--job-key", &key]);
    let bulk = measure(&server, &["--job-key", &key]);
    bulk_is_complete(&bulk);
    assert_eq!(bulk["config"]["protection"], "job_key");
}

/// The measurement of 500 ms ends before the client stops trying, and the one of 20 s ends after
/// it.
#[test]
fn regression_keys_that_differ_are_named_and_what_to_do() {
    let key = format!("{}1", "0".repeat(63));
    let other = format!("{}2", "0".repeat(63));
    let shared = server(&["--job-key", &key]);
    let own = server(&[]);
    let stranger = server(&[]);
    let public = ["--peer-key", &stranger.public_key];
    let job = ["--job-key", &other];
    for (at, words, remedy) in [(&own, public, "--peer-key"), (&shared, job, "--job-key-file")] {
        for time in ["500ms", "20s"] {
            let output = client(at, &[&["--time", time][..], &words].concat());
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{time}: {error}");
            assert!(error.contains("the keys of the two ends differ"), "{time}: {error}");
            assert!(error.contains(remedy), "{time}: {error}");
        }
    }
}

/// A server at `::` also accepts clients that connect by IPv4.
#[test]
fn regression_a_server_at_the_unspecified_address_of_ipv6_serves_ipv4() {
    let at = |transport| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_srd"))
            .args(["perf", "server", "--bind", "::", "--port", "0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let at: SocketAddr = line.strip_prefix("srd perf server on ").unwrap().parse().unwrap();
        let public_key = lines.next().unwrap().unwrap();
        let public_key = public_key.strip_prefix("public key ").unwrap().to_owned();
        std::thread::spawn(move || lines.for_each(drop));
        let address = SocketAddr::new(own_address().into(), at.port());
        let server = Server { child, address, public_key };
        let key = server.public_key.clone();
        let words: &[&str] = if transport == "srd" { &["--peer-key", &key] } else { &[] };
        bulk_is_complete(&measure(&server, &[&["--transport", transport][..], words].concat()));
    };
    ["srd", "udp", "tcp"].into_iter().for_each(at);
}

#[test]
fn a_server_without_the_job_key_says_so() {
    let server = server(&[]);
    let key = "00".repeat(32);
    let output = client(&server, &["--job-key", &key]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the server refuses") && error.contains("--job-key-file"), "{error}");
}

#[test]
fn a_server_with_keys_measures_nothing_in_clear_unless_it_is_allowed() {
    let key = "0123456789abcdef".repeat(4);
    let strict = server(&["--job-key", &key]);
    for extra in [&["--encrypt", "off"][..], &["--transport", "udp"], &["--transport", "tcp"]] {
        let output = client(&strict, extra);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{extra:?}: {error}");
        assert!(error.contains("refuses") && error.contains("--allow-plain"), "{error}");
    }
    bulk_is_complete(&measure(&strict, &["--job-key", &key]));
    let lenient = server(&["--job-key", &key, "--allow-plain"]);
    bulk_is_complete(&measure(&lenient, &["--encrypt", "off"]));
    bulk_is_complete(&measure(&lenient, &["--transport", "tcp"]));
}

/// The strangers are connections that send nothing or too little, or announce a measurement of a
/// day or of centuries.
#[test]
fn strangers_hold_the_server_for_a_bounded_time() {
    let server = server(&[]);
    let stranger = |says: &[u8]| {
        let mut stranger = TcpStream::connect(server.address).unwrap();
        stranger.write_all(says).unwrap();
        stranger
    };
    let hello = |time_ms: u64| {
        let body = format!(
            r#"{{"hello":{{"version":2,"params":{{"transport":"udp","mode":"rr","size_bytes":64,
            "time_ms":{time_ms},"streams":1,"paths":1,"protection":"plain","busy_poll":false,
            "link_rate_bps":0,"workers":1}}}}}}"#
        );
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&b"srdp"[..], &length, body.as_bytes()].concat()
    };
    let strangers = [stranger(b"srdp"), stranger(&hello(u64::MAX)), stranger(&hello(86_400_000))];
    // The client retries for longer than the strangers may occupy the server, unless the machine is
    // very busy.
    let udp = ["--time", "300ms", "--transport", "udp"];
    assert!((0..5).any(|_| client(&server, &udp).status.success()), "strangers hold the server");
    drop(strangers);
}

#[test]
fn a_port_that_the_system_chose_is_held_for_udp_as_well() {
    let server = server(&[]);
    let taken = UdpSocket::bind(server.address).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    // The server keeps the UDP port between two measurements, although each measurement binds it
    // anew.
    bulk_is_complete(&measure(&server, &["--transport", "udp"]));
    bulk_is_complete(&measure(&server, &["--encrypt", "off"]));
}

#[test]
fn the_key_of_a_server_is_printed_and_read_as_the_daemons() {
    let server = server(&[]);
    assert_eq!(server.public_key.len(), 44, "{}", server.public_key);
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(&server.public_key).unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    for key in [&server.public_key, &hex] {
        bulk_is_complete(&measure(&server, &["--peer-key", key]));
    }
}
