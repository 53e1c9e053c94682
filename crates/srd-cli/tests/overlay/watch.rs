//! `srd watch` and `srd profile` on an interface of a separate namespace: the chosen source of
//! packets with the reason, metrics, reports, and what a killed process leaves behind. Needs root.
#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::veth::{INTERFACE, Pair};

/// Maximum time of any step.
const PATIENCE: Duration = Duration::from_secs(120);
/// Address in the namespace at which the tested watch serves metrics.
const METRICS: &str = "127.0.0.1:9187";

/// Returns the command `srd watch` in the first namespace. `rights` are its only capabilities;
/// `None` leaves it all capabilities.
fn command(pair: &Pair, rights: Option<&str>, words: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &pair.names[0]]);
    if let Some(rights) = rights {
        command.args(["setpriv", "--inh-caps=-all", &format!("--bounding-set=-all{rights}")]);
    }
    command.args([env!("CARGO_BIN_EXE_srd"), "watch", INTERFACE, "--rate", "10M"]);
    command.args(words.split(' '));
    command
}

/// Returns the command's JSON about the source of packets, its error output, and its exit code.
fn source(pair: &Pair, rights: Option<&str>, words: &str) -> (serde_json::Value, String, i32) {
    let Output { status, stdout, stderr } =
        command(pair, rights, &format!("{words} --seconds 100ms --json -")).output().unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned();
    let first = said.lines().next().and_then(|line| serde_json::from_str(line).ok());
    let errors = String::from_utf8_lossy(&stderr).into_owned();
    (first.unwrap_or_default(), errors, status.code().unwrap())
}

#[test]
fn the_source_is_what_rights_allow_and_the_reason_is_said() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let (bpf, raw) = (Some(",+bpf,+net_admin"), Some(",+net_raw"));
    let (said, errors, code) = source(&pair, None, "--source auto");
    assert_eq!((said["source"].as_str(), code), (Some("ebpf"), 0), "{said} {errors}");
    assert_eq!(said["interface"], INTERFACE);
    assert!(said["reason"].as_str().unwrap().contains("can do it"), "{said}");
    // eBPF works with these two capabilities alone.
    let (said, errors, code) = source(&pair, bpf, "--source ebpf");
    assert_eq!((said["source"].as_str(), code), (Some("ebpf"), 0), "{said} {errors}");
    for rights in [raw, Some(",+net_raw,+bpf"), Some(",+net_raw,+net_admin")] {
        let (said, errors, code) = source(&pair, rights, "--source auto");
        assert_eq!((said["source"].as_str(), code), (Some("packet"), 0), "{said} {errors}");
        let reason = said["reason"].as_str().unwrap();
        assert!(reason.contains("CAP_BPF and CAP_NET_ADMIN"), "{reason}");
    }
    let (said, _, code) = source(&pair, None, "--source packet");
    assert_eq!((said["source"].as_str(), code), (Some("packet"), 0));
    let (_, errors, code) = source(&pair, raw, "--source ebpf");
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains("CAP_BPF") && errors.contains("--source packet"), "{errors}");
    let (_, errors, code) = source(&pair, bpf, "--source packet");
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains("CAP_NET_RAW"), "{errors}");
    let (_, errors, code) = source(&pair, None, "--source packet --pps 1000000");
    assert_eq!(code, 0, "{errors}");
    // In text output, the source is reported in exactly one line.
    let words = "--seconds 100ms --summary";
    let text = command(&pair, raw, words).output().unwrap().stdout;
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines = text.lines().filter(|line| line.contains("v0: packets by a packet socket"));
    assert_eq!(lines.count(), 1, "{text}");
}

/// Returns the response to a request for `/metrics`; `None` if the connection fails.
fn metrics(pair: &Pair) -> Option<String> {
    pair.within(0, || {
        let mut stream = TcpStream::connect(METRICS).ok()?;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {METRICS}\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    })
}

fn value(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

/// A process that is killed when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_burst_is_counted_in_metrics_and_a_killed_watch_leaves_no_program() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    pair.acquaint();
    let programs = || pair.within(0, || srd_net::tcx::programs_at(INTERFACE).unwrap());
    assert_eq!(programs(), [0, 0]);
    let words = format!("--source ebpf --json - --metrics {METRICS}");
    let child = command(&pair, None, &words).stdout(Stdio::piped()).spawn().unwrap();
    let mut watch = Killed(child);
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let opened: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(opened["source"], "ebpf");
    assert_eq!(programs(), [1, 1]);
    let text = metrics(&pair).unwrap();
    let out = "{interface=\"v0\",direction=\"out\"}";
    assert_eq!(value(&text, &format!("srd_watch_bursts_total{out}")), Some(0), "{text}");
    pair.within(0, || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        for _ in 0..2000 {
            socket.send_to(&[7; 1000], "10.77.0.2:9").unwrap();
        }
    });
    let burst: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(burst["way"], "out", "{burst}");
    let (until, mut text) = (Instant::now() + PATIENCE, String::new());
    let packets = |text: &str| value(text, &format!("srd_watch_packets_total{out}"));
    while packets(&text) < Some(2000) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
        text = metrics(&pair).unwrap();
    }
    assert!(packets(&text) >= Some(2000), "{text}");
    assert!(value(&text, &format!("srd_watch_ip_bytes_total{out}")) >= Some(2000 * 1028));
    assert!(value(&text, &format!("srd_watch_bursts_total{out}")) >= Some(1), "{text}");
    assert!(value(&text, &format!("srd_watch_burst_length_seconds_count{out}")) >= Some(1));
    assert_eq!(value(&text, "srd_watch_samples_lost_total{interface=\"v0\"}"), Some(0));
    watch.0.kill().unwrap();
    watch.0.wait().unwrap();
    let until = Instant::now() + PATIENCE;
    while programs() != [0, 0] && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(programs(), [0, 0], "the links ended with the process");
}

#[test]
fn regression_a_reader_that_has_left_does_not_cost_the_page() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("bursts.html");
    let words = format!("--seconds 120s --html {}", page.display());
    // The reader has closed the pipe before the first line is written.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut watch = Killed(command(&pair, None, &words).stdout(writer).spawn().unwrap());
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = watch.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < until, "it goes on without a reader");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
}

#[test]
fn a_profile_of_an_interface_has_its_packets_and_the_type_that_is_asked_for() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    pair.acquaint();
    let directory = tempfile::tempdir().unwrap();
    let [json, page] = ["p.json", "p.html"].map(|name| directory.path().join(name));
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &pair.names[0], env!("CARGO_BIN_EXE_srd"), "profile"]);
    command.args([INTERFACE, "--for", "2s", "--type", "c7i.large"]);
    command.arg("--json").arg(&json).arg("--html").arg(&page);
    let mut profile = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    let until = Instant::now() + PATIENCE;
    // Packets are sent during the whole time, because the observation begins at an unknown moment.
    let status = pair.within(0, || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        loop {
            socket.send_to(&[7; 1000], "10.77.0.2:9").unwrap();
            if let Some(status) = profile.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "the profile does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(status.success(), "{status}");
    let text = std::fs::read_to_string(&json).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let seen = &report["profiles"][0]["seen"];
    assert_eq!(seen["name"], INTERFACE);
    assert!(seen["packets"].as_u64() > Some(10), "{seen}");
    assert!(seen["bytes"]["out"].as_f64() >= Some(10.0 * 1028.0), "{seen}");
    assert_eq!(seen["largest_bytes"], 1028);
    assert!(text.contains("c7i.large"), "{text}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
}
