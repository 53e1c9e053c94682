//! `srd control`: the list of actions, and a request over a socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

fn srd() -> Command {
    Command::new(env!("CARGO_BIN_EXE_srd"))
}

#[test]
fn actions_are_listed_with_those_that_are_missing() {
    let output = srd().args(["control", "actions", "--json", "-"]).output().unwrap();
    assert!(output.status.success());
    let actions: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let has = |list: &str, name: &str| actions[list].as_array().unwrap().iter().any(|n| n == name);
    assert!(has("served", "CreateVpc") && !has("missing", "CreateVpc"));
    assert!(has("autoscaling", "SetDesiredCapacity") && has("served", "CreateLaunchTemplate"));
    assert!(has("missing", "CreateIpam") && !has("served", "CreateIpam"));
}

#[test]
fn a_trial_answers_at_loopback_addresses_only() {
    let refused = |args: &[&str]| {
        let output = srd().args(["control", "up"]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&[]).contains("--trial"));
    assert!(refused(&["--trial", "--listen", "0.0.0.0:0"]).contains("loopback"));
    let mut server = srd()
        .args([
            "control",
            "up",
            "--trial",
            "--any-credentials",
            "--state-only",
            "--listen",
            "127.0.0.1:0",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines(&mut server);
    let address = lines[0].split("http://").nth(1).unwrap().split(' ').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let query = "Action=DescribeRegions&Version=2016-11-15";
    let credential = "x/20270115/us-east-1/ec2/aws4_request";
    write!(
        stream,
        "GET /?{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         x-amz-date: 20270115T080000Z\r\n\
         authorization: AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, \
         Signature=0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("<regionName>eu-west-1</regionName>"), "{answer}");
}

/// Reads the lines of a started server up to the last line.
fn lines(server: &mut std::process::Child) -> Vec<String> {
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut read = Vec::new();
    while !read.last().is_some_and(|line: &String| line.starts_with("instances")) {
        read.push(lines.next().unwrap());
    }
    read
}

#[test]
fn a_trial_writes_its_key_for_its_owner_only_and_refuses_other_credentials() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (path, target) = (dir.path().join("key.env"), dir.path().join("target"));
    std::fs::write(&target, "kept").unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    let mut server = srd()
        .args(["control", "up", "--trial", "--state-only", "--listen", "127.0.0.1:0", "--key-file"])
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines(&mut server);
    let address = lines[0].split("http://").nth(1).unwrap().split(' ').next().unwrap();
    let file = std::fs::read_to_string(&path).unwrap();
    let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "POST /reset HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(mode & 0o177_777, 0o100_600);
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
    assert_eq!(lines[1], format!("export {}", file.trim_end().replace('\n', " ")));
    assert!(file.contains(&format!("AWS_ENDPOINT_URL=http://{address}")), "{file}");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}
