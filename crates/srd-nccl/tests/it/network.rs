//! Two processes with the plugin: on loopback, and in two network namespaces with a cable between
//! them, which needs root. Without root the test prints that it was skipped and passes; in CI it
//! fails.

#![allow(clippy::unwrap_used, unsafe_code, reason = "a test, with helpers that call as C does")]

use crate::cable::Cable;
use crate::support;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the path of the program that both ends run.
fn program() -> std::path::PathBuf {
    support::built("examples/nccl_pair")
}

/// One process of a pair. It is ended when this value is dropped.
struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a process with settings for the plugin, in a namespace if one is given.
    fn start(namespace: Option<&str>, settings: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut command = match namespace {
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program());
                command
            }
            None => Command::new(program()),
        };
        command.args(arguments).envs(settings.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().into()
    }

    /// Waits for the end of the process. Returns whether it succeeded, and the rest of its output.
    fn end(&mut self) -> (bool, String) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().success(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server and its client.
fn pair(
    ends: [Option<&str>; 2],
    settings: [&[(&str, &str)]; 2],
    ip: &str,
    job: &[&str],
) -> [Running; 2] {
    let mut server = Running::start(ends[0], settings[0], &["serve", &format!("{ip}:0")]);
    let ready = server.line();
    let at = ready.strip_prefix("ready at ").unwrap_or_else(|| panic!("{ready}"));
    let client = Running::start(ends[1], settings[1], &[&[at], job].concat());
    [server, client]
}

fn run(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns two namespaces with a cable between 198.18.79.1 and 198.18.79.2; `None` without root or
/// without `ip`.
fn cable(name: &str) -> Option<Cable> {
    // SAFETY: the call has no conditions.
    let root = unsafe { libc::geteuid() } == 0;
    let tool = Command::new("ip").arg("-V").output().is_ok();
    if !root || !tool {
        let lacks = if root { "no ip (apt-get install iproute2)" } else { "it needs root" };
        let ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!ci, "in CI this test must run: {lacks}");
        println!("skipped: {lacks}");
        return None;
    }
    Some(Cable::new(&format!("srdnccl-{name}"), "198.18.79", "mtu 9000"))
}

/// Returns the names of both namespaces.
fn ends(cable: &Cable) -> [Option<&str>; 2] {
    cable.ends.each_ref().map(|end| Some(end.as_str()))
}

/// Longest time for any step.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOPBACK: (&str, &str) = ("SRD_NCCL_IFACE", "lo");
/// Timeouts after which a silent peer is given up, whether or not it has answered before. They are
/// short, but longer than a process may be delayed on a busy machine.
const SOON: [(&str, &str); 2] =
    [("SRD_NCCL_PEER_TIMEOUT_MS", "4000"), ("SRD_NCCL_ANSWER_TIMEOUT_MS", "4000")];
const SIZES: &str = "0,1,8,8192,8200,65536,65537,1048576,67108864";

fn moves(ends: [Option<&str>; 2], settings: &[(&str, &str)], ip: &str, job: &[&str]) {
    let sizes = job[1].split(',').count();
    for mut end in pair(ends, [settings, settings], ip, job) {
        let (well, said) = end.end();
        assert!(well && said.matches("are right").count() == sizes, "{said}");
    }
}

#[test]
fn two_processes_exchange_messages_of_all_sizes_on_loopback() {
    moves([None, None], &[LOOPBACK], "127.0.0.1", &["check", SIZES]);
}

#[test]
fn two_hosts_exchange_messages_of_all_sizes() {
    let Some(cable) = cable("all") else { return };
    moves(ends(&cable), &[], "198.18.79.1", &["check", SIZES]);
}

#[test]
#[ignore = "a gigabyte: with --release"]
fn two_hosts_exchange_a_gigabyte() {
    let Some(cable) = cable("giga") else { return };
    moves(ends(&cable), &[], "198.18.79.1", &["check", "1073741824"]);
}

#[test]
fn a_key_lets_in_what_has_it_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let key = |name: &str, digit: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, digit.repeat(64)).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (key("right", "5"), key("wrong", "6"));
    let answer = ("SRD_NCCL_ANSWER_TIMEOUT_MS", "1500");
    let with = |key| [LOOPBACK, answer, ("SRD_NCCL_KEY_FILE", key)];
    let patient = [LOOPBACK, ("SRD_NCCL_KEY_FILE", right.as_str())];
    moves([None, None], &patient, "127.0.0.1", &["check", SIZES]);
    let (good, bad) = (with(&right), with(&wrong));
    for other in [&bad[..], &[LOOPBACK, answer]] {
        let ends = pair([None, None], [&good, other], "127.0.0.1", &["check", "8"]);
        for mut end in ends {
            let (well, said) = end.end();
            assert!(!well && said.contains("not connected: RemoteError"), "{said}");
        }
    }
}

/// Checks that the server's call fails with a remote error. If no request in progress failed, NCCL
/// itself would wait forever.
fn it_fails(mut server: Running) {
    let begin = Instant::now();
    let said = server.line();
    assert!(said.starts_with("it ended") && said.contains("RemoteError"), "{said}");
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    assert!(server.end().0);
}

#[test]
fn a_receive_fails_when_the_peer_s_process_is_killed() {
    let job = ["hang", "0"];
    let settings = &[LOOPBACK, SOON[0], SOON[1]][..];
    let [mut server, mut client] = pair([None, None], [settings, settings], "127.0.0.1", &job);
    assert_eq!((server.line().as_str(), client.line().as_str()), ("waits", "connected"));
    client.child.kill().unwrap();
    it_fails(server);
}

/// If the peer has ended, the message fails first, and the receive fails with it. In an earlier
/// version, the receive waited for the answer to a probe as long as for a peer that never answered,
/// and its error named a firewall.
#[test]
fn regression_a_receive_fails_with_the_first_request_that_finds_its_peer_gone() {
    let answer_max = Duration::from_secs(120);
    let answer = answer_max.as_millis().to_string();
    let settings = &[LOOPBACK, SOON[0], ("SRD_NCCL_ANSWER_TIMEOUT_MS", &answer)];
    let [mut server, mut client] =
        pair([None, None], [settings, settings], "127.0.0.1", &["both", "0"]);
    assert_eq!((server.line().as_str(), client.line().as_str()), ("waits", "connected"));
    client.child.kill().unwrap();
    let begin = Instant::now();
    let said = [server.line(), server.line()];
    assert!(said[0].starts_with("the message ended: Err(RemoteError)"), "{said:?}");
    assert!(said[1].starts_with("the receive ended: Err(RemoteError)"), "{said:?}");
    assert!(begin.elapsed() < answer_max, "{:?}", begin.elapsed());
    let (well, _) = server.end();
    assert!(well);
}

#[test]
fn small_messages_fail_when_the_peer_s_process_is_killed_though_their_requests_ended_at_once() {
    let job = ["pour", "0"];
    let settings = &[LOOPBACK, SOON[0], SOON[1]][..];
    let [mut server, mut client] = pair([None, None], [settings, settings], "127.0.0.1", &job);
    assert_eq!((server.line().as_str(), client.line().as_str()), ("pours", "connected"));
    client.child.kill().unwrap();
    it_fails(server);
}

#[test]
fn a_receive_fails_when_the_cable_is_cut() {
    let Some(cable) = cable("cut") else { return };
    let settings = &SOON[..];
    let pair = pair(ends(&cable), [settings, settings], "198.18.79.1", &["hang", "0"]);
    let [mut server, mut client] = pair;
    assert_eq!((server.line().as_str(), client.line().as_str()), ("waits", "connected"));
    run(&format!("ip -n {} link set v0 down", cable.ends[1]));
    it_fails(server);
}
