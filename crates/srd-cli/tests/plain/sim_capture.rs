//! `srd sim run --capture`: packets that a port of the simulator sends and drops, read by tshark.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

const PORT: &str = "tor0->host0";

fn srd(words: &[&str]) -> Output {
    let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Command::new(env!("CARGO_BIN_EXE_srd")).args(words).current_dir(scenarios).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Simulates an incast of 48 servers that send 64 KiB each, with the options in `words`.
fn incast(words: &[&str]) -> Output {
    let run = ["sim", "run", "paper-a-48-servers", "--set", "workload.0.bytes=64KiB"];
    let output = srd(&[&run[..], words].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// Returns the fields `names` of each packet in a capture file, as tshark reads them.
fn fields(file: &Path, names: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file).args(["-o", "ip.check_checksum:TRUE", "-T", "fields"]);
    tshark.args(["-E", "separator=;", "-E", "occurrence=f"]);
    for name in names {
        tshark.args(["-e", name]);
    }
    let output = tshark.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    lines.lines().map(|l| l.split(';').map(str::to_owned).collect()).collect()
}

fn file_of(directory: &Path, transport: &str) -> std::path::PathBuf {
    let suffix = format!("-{transport}-1.pcapng");
    let mut files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.find(|f| f.to_string_lossy().ends_with(&suffix)).expect("a capture of the run")
}

#[test]
fn tshark_reads_what_a_port_sent_and_dropped() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: no tshark (apt-get install tshark)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let transports = ["--transport", "srd", "--transport", "tcp"];
    let captured = incast(&[&transports[..], &["--out", out, "--capture", PORT]].concat());
    let plain = incast(&transports);
    let figures = |output: &Output| -> Vec<String> {
        let said = text(&output.stdout);
        said.lines().filter(|l| l.contains("srd ") || l.contains("tcp ")).map(no_speed).collect()
    };
    assert_eq!(figures(&captured), figures(&plain), "a capture changes nothing");

    let names = ["ip.src", "ip.dst", "ip.len", "frame.comment", "ip.checksum.status"];
    for transport in ["srd", "tcp"] {
        let packets = fields(&file_of(directory.path(), transport), &names);
        assert!(packets.len() > 48 * 16, "{transport}: {} packets", packets.len());
        let mut bytes_of = BTreeMap::<&str, u64>::new();
        let mut dropped = 0;
        for packet in &packets {
            assert_eq!((packet[1].as_str(), packet[4].as_str()), ("10.0.0.0", "1"), "{packet:?}");
            if packet[3].is_empty() {
                *bytes_of.entry(&packet[0]).or_default() += packet[2].parse::<u64>().unwrap();
            } else {
                assert_eq!(packet[3], "dropped: the queue is full");
                dropped += 1;
            }
        }
        assert_eq!(bytes_of.len(), 48, "each server sent");
        assert!(
            bytes_of.values().all(|&bytes| bytes >= 65_536),
            "all payload passed: {bytes_of:?}"
        );
        assert!(dropped > 0, "{transport}: an incast overflows the queue");
    }
    let names = ["tcp.len", "tcp.options.timestamp.tsval", "tcp.flags.syn"];
    let tcp = fields(&file_of(directory.path(), "tcp"), &names);
    let bytes: u64 = tcp.iter().map(|segment| segment[0].parse::<u64>().unwrap()).sum();
    assert!(bytes >= 48 * 65_536, "{bytes} bytes of payload");
    assert!(tcp.iter().all(|segment| !segment[1].is_empty()), "each has its timestamp");
    let opens =
        |segment: &&Vec<String>| segment[0] != "0" && !["0", "False"].contains(&&*segment[2]);
    assert_eq!(tcp.iter().find(opens), None, "no data opens a connection");
}

/// Returns a line of the result table without its last column, the speed of the simulator, which
/// differs from run to run.
fn no_speed(line: &str) -> String {
    line.rsplit_once(char::is_whitespace).map_or(line, |(rest, _)| rest).to_owned()
}

#[test]
fn a_capture_has_its_bound_and_counts_what_is_beyond() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let bound = ["--set", "measure.capture_packets=10", "--transport", "srd"];
    incast(&[&bound[..], &["--out", out, "--capture", PORT]].concat());
    let file = std::fs::read(file_of(directory.path(), "srd")).unwrap();
    let (mut packets, mut missed, mut rest) = (0, None, &file[..]);
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let (kind, length) = (word(0), word(4) as usize);
        match kind {
            srd_pcapng::PACKET => packets += 1,
            srd_pcapng::STATISTICS => missed = Some(dropped(&rest[..length])),
            _ => {}
        }
        rest = &rest[length..];
    }
    assert_eq!(packets, 10);
    assert!(missed.unwrap() > 48 * 16, "{missed:?}");
}

/// Returns the number of missing packets from a pcapng Interface Statistics Block.
fn dropped(block: &[u8]) -> u64 {
    let mut options = &block[srd_pcapng::STATISTICS_HEAD_BYTES..];
    loop {
        let code = u16::from_le_bytes(options[..2].try_into().unwrap());
        let length = usize::from(u16::from_le_bytes(options[2..4].try_into().unwrap()));
        if code == srd_pcapng::STATISTICS_DROPPED {
            return u64::from_le_bytes(options[4..12].try_into().unwrap());
        }
        assert_ne!(code, 0, "no such option");
        options = &options[4 + length.next_multiple_of(4)..];
    }
}

#[test]
fn captures_that_cannot_be_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let run = ["sim", "run", "paper-a-48-servers", "--transport", "srd", "--out", out];
    let bound = |value: &'static str| ["--capture", PORT, "--set", value];
    for (words, said) in [
        (&["--capture", "host999->tor0"][..], "host999"),
        (&bound("measure.capture_packets=0"), "must be 1 to 10000000, not 0"),
        (&bound("measure.capture_packets=10000001"), "must be 1 to 10000000, not 10000001"),
    ] {
        let output = srd(&[&run[..], words].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said), "{error}");
    }
    let nowhere = srd(&["sim", "run", "paper-a-48-servers", "--capture", PORT]);
    assert_eq!(nowhere.status.code(), Some(2), "a capture needs --out");
}
