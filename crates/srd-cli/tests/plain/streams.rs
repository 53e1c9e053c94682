//! Standard output whose reader has left, and standard error on a full disk.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Returns the writing end of a pipe whose reader has closed it.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Stdio::from(writer)
}

/// Returns a stream that behaves like a file on a full disk.
fn full() -> Stdio {
    Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap())
}

fn srd(words: &[&str]) -> Command {
    let scenarios = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(words).current_dir(scenarios).stdin(Stdio::null()).env_remove("RUST_LOG");
    command
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// Regression: the program panicked (exit code 101) when it could not print its error.
#[test]
fn regression_an_error_that_cannot_be_printed_keeps_its_exit_code() {
    for stream in [closed, full] {
        let status = srd(&["sim", "run", "nosuchname"]).stderr(stream()).status().unwrap();
        assert_eq!(status.code(), Some(2));
    }
}

/// Regression: the files were not written, and the exit code was 0.
#[test]
fn regression_files_are_written_although_the_reader_of_the_text_has_left() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("result.json");
    let (path, out) = (file.to_str().unwrap(), directory.path().join("flows"));
    let run = ["sim", "run", "one-byte-writes", "--transport", "srd"];
    let status = srd(&[&run[..], &["--json", path]].concat()).stdout(closed()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(json(&file).as_array().map(Vec::len), Some(1));
    let words = [&run[..], &["--out", out.to_str().unwrap()]].concat();
    let status = srd(&words).stdout(closed()).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(fs::read_dir(out).unwrap().next().is_some());
}

/// Regression: the file was emptied before the interface was looked for.
#[test]
fn regression_a_watch_that_cannot_begin_leaves_earlier_results() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bursts.json");
    fs::write(&file, "{}\n").unwrap();
    let watch = ["watch", "nosuchif", "--rate", "10G", "--json", file.to_str().unwrap()];
    assert_eq!(srd(&watch).stderr(Stdio::null()).status().unwrap().code(), Some(2));
    assert_eq!(fs::read_to_string(&file).unwrap(), "{}\n");
}

/// Regression: the exit code was 0 however many checks failed.
#[test]
fn regression_failed_checks_are_counted_although_the_reader_has_left() {
    let directory = tempfile::tempdir().unwrap();
    let interface = directory.path().join("sys/class/net/eth0");
    fs::create_dir_all(&interface).unwrap();
    // Packets of the protocol need more.
    fs::write(interface.join("mtu"), "1300\n").unwrap();
    let file = directory.path().join("result.json");
    let root = directory.path().to_str().unwrap();
    let check = ["check", "--interface", "eth0", "--only", "mtu", "--root", root];
    let check = [&check[..], &["--json", file.to_str().unwrap()]].concat();
    let read = srd(&check).stdout(Stdio::null()).status().unwrap();
    let failed = json(&file)["required_failed"].as_i64();
    assert_eq!(read.code(), Some(1));
    fs::remove_file(&file).unwrap();
    let status = srd(&check).stdout(closed()).status().unwrap();
    assert_eq!(status.code().map(i64::from), failed);
    assert_eq!(json(&file)["required_failed"].as_i64(), failed);
    let status = srd(&check[..7]).stdout(closed()).status().unwrap();
    assert_eq!(status.code().map(i64::from), failed);
}
