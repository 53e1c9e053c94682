//! `srd perf` between two processes over loopback: that it works, not how fast.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// A server on a port of its own, ended with the test.
struct Server {
    child: Child,
    port: String,
    public_key: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn server(extra: &[&str]) -> Server {
    // SRD takes a run of ports from this one on; tests of other processes are far away.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 20_000 + u16::try_from(std::process::id() % 200).unwrap() * 100;
    let port = (base + NEXT.fetch_add(1, Ordering::Relaxed) * 20).to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_srd"))
        .args(["perf", "server", "--bind", "127.0.0.1", "--port", &port])
        .args(extra)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains(&port), "{first}");
    let second = lines.next().unwrap().unwrap();
    let public_key = second.strip_prefix("public key ").unwrap().to_owned();
    // Nobody reads the rest: the pipe holds more than a test prints.
    std::thread::spawn(move || lines.for_each(drop));
    Server { child, port, public_key }
}

fn measure(server: &Server, extra: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_srd"))
        .args(["perf", "client", "127.0.0.1", "--port", &server.port])
        .args(["--time", "300ms", "--paths", "4", "--json", "-"])
        .args(extra)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{extra:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn bulk_is_complete(result: &serde_json::Value) {
    assert!(result["gbps"].as_f64().unwrap() > 0.001, "{result}");
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

#[test]
fn a_server_without_the_job_key_says_so() {
    let server = server(&[]);
    let key = "00".repeat(32);
    let output = Command::new(env!("CARGO_BIN_EXE_srd"))
        .args(["perf", "client", "127.0.0.1", "--port", &server.port, "--job-key", &key])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the server refuses") && error.contains("--job-key-file"), "{error}");
}
