//! The `srd` commands that need a running daemon, against the daemon's control server over a data
//! plane without packets; and the commands that make keys.

use srd_daemon::capture::{Captures, Direction, Taps};
use srd_daemon::config::{Config, Control, ReloadReport};
use srd_daemon::control::{Server, Services, Socket};
use srd_daemon::plane::{
    Command as PlaneCommand, Detail, PathsOf, PeerNumber, PlaneError, PlaneHandle, Statistics,
};
use srd_daemon::snapshot::{Counters, PathSnapshot, PeerSnapshot, PeerState, Snapshot};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const USAGE: i32 = 2;
const MISSING: i32 = 3;
/// An account without privileges.
const NOBODY: u32 = 65534;
/// Maximum time that the test waits for one event.
const PATIENCE: Duration = Duration::from_secs(120);

struct Daemon {
    directory: tempfile::TempDir,
    socket: PathBuf,
    _server: Server,
}

fn daemon() -> Daemon {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("run/srd0.sock");
    let file = directory.path().join("srd.toml");
    fs::write(&file, RUNNING).expect("a file");
    let statistics = FixedStatistics { file: file.display().to_string() };
    let (plane, commands) = PlaneHandle::new(Arc::new(|| {}), Arc::new(statistics));
    std::thread::spawn(move || run_plane(&commands));
    let socket = Socket::bind(&Control::at(path.clone())).expect("a socket");
    let loader = || Config::parse("[interface]\nmtu = '5'\n", Path::new("/etc/srd/srd.toml"));
    let server =
        Server::start(socket, plane, Arc::new(loader), Services::default()).expect("a thread");
    Daemon { directory, socket: path, _server: server }
}

/// Statistics that never change.
struct FixedStatistics {
    file: String,
}

impl Statistics for FixedStatistics {
    fn snapshot(&self, detail: &Detail) -> Result<Snapshot, PlaneError> {
        Ok(Snapshot { file: self.file.clone(), ..snapshot(&detail.paths) })
    }
}

fn run_plane(commands: &Receiver<PlaneCommand>) {
    let (mut captures, mut taps) = (Captures::default(), Taps::default());
    loop {
        let now = srd_net::Clock::new().now();
        taps.inner(now, Direction::Out, Some(PeerNumber(1)), &[0x45; 40]);
        match commands.recv_timeout(Duration::from_millis(2)) {
            Ok(PlaneCommand::Set { reply, .. }) => reply.send(Ok(())),
            Ok(PlaneCommand::Reload { reply, .. }) => reply.send(Ok(ReloadReport::default())),
            Ok(PlaneCommand::Capture { filter, reply }) => {
                let peer = filter.peer.as_ref().map(|_| PeerNumber(1));
                reply.send(captures.begin(&filter, peer, 1).map(|(ends, reader)| {
                    ends.into_iter().for_each(|tap| taps.add(tap));
                    reader
                }));
            }
            Ok(PlaneCommand::Running { reply }) => reply.send(Box::new(running())),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(PlaneCommand::Rekey { reply, .. }) => reply.send(Ok(())),
            Ok(PlaneCommand::Describe { reply }) => reply.send(Err("this is a fake".into())),
            Ok(PlaneCommand::HandOver { reply, .. }) => reply.send(Err("this is a fake".into())),
            Ok(PlaneCommand::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The configuration of the daemon, which has one peer.
const RUNNING: &str = "[interface]\nmode = \"transparent\"\nlisten = \"0.0.0.0:7471\"\n\
                       protection = \"plain\"\n[[peer]]\nname = \"b\"\n\
                       endpoint = \"192.0.2.2:7471\"\nallowed = [\"192.0.2.2\"]\n";

fn running() -> Config {
    Config::parse(RUNNING, Path::new("running.toml")).expect("it is right")
}

fn snapshot(paths: &PathsOf) -> Snapshot {
    let state = "good".to_owned();
    let path = PathSnapshot { path: 5, state, sent_pkts: 70, ..PathSnapshot::default() };
    let peer = PeerSnapshot {
        name: "b".into(),
        public_key: Some("AAAAAAAAAAAA".into()),
        state: PeerState::Up,
        path_reports: if *paths == PathsOf::Nobody { Vec::new() } else { vec![path] },
        ..PeerSnapshot::default()
    };
    Snapshot {
        interface: "srd0".into(),
        counters: Counters { ena_srd_mode: 3, ..Counters::default() },
        peers: vec![peer],
        ..Snapshot::default()
    }
}

impl Daemon {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
        command.args(arguments).arg("--socket").arg(&self.socket);
        command.stdin(Stdio::null()).env_remove("RUST_LOG");
        command
    }

    #[track_caller]
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("the binary is built");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "srd {arguments:?}\n{complaints}");
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    fn refuses(&self, arguments: &[&str], code: i32, says: &[&str]) {
        let output = self.command(arguments).output().expect("the binary is built");
        refused(&output, code, says);
    }
}

#[track_caller]
fn refused(output: &Output, code: i32, says: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    for text in says {
        assert!(error.contains(text), "`{text}` is not in\n{error}");
    }
}

#[test]
fn status_stats_and_paths_for_people_and_for_machines() {
    let daemon = daemon();
    assert!(daemon.prints(&["status"]).contains("srd0: overlay, NOT ENCRYPTED"));
    let json: serde_json::Value =
        serde_json::from_str(&daemon.prints(&["status", "--json"])).unwrap();
    assert_eq!((&json["interface"], &json["peers"][0]["state"]), (&"srd0".into(), &"up".into()));
    assert_eq!(json["counters"]["ena_srd_mode"], 3);
    // Regression: a file and a hyphen were refused, which other commands take.
    assert_eq!(daemon.prints(&["stats", "--json", "-"]), daemon.prints(&["stats", "--json"]));
    let file = daemon.directory.path().join("status.json");
    let text = daemon.prints(&["status", "--json", file.to_str().unwrap()]);
    assert!(text.contains("srd0: overlay, NOT ENCRYPTED"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(json["interface"], "srd0");
    let stats = daemon.prints(&["stats"]);
    assert!(stats.starts_with("NIC statistics:\n     ena_srd_mode: 3\n     ena_srd_tx_pkts: 0\n"));
    let paths = daemon.prints(&["paths", "b"]);
    assert!(paths.lines().last().unwrap().starts_with('5'), "{paths}");
    let json: serde_json::Value =
        serde_json::from_str(&daemon.prints(&["paths", "AAAAAAAA", "--json"])).unwrap();
    assert_eq!(json["path_reports"][0]["sent_pkts"], 70);
}

#[test]
fn settings_are_set_and_nonsense_is_refused() {
    let daemon = daemon();
    assert!(daemon.prints(&["set", "b", "express", "off"]).contains("until the next restart"));
    daemon.prints(&["set", "all", "udp-ordering", "bypass"]);
    daemon.refuses(&["set", "b", "express", "bypass"], USAGE, &["on or off"]);
    daemon.refuses(&["set", "b", "udp-ordering", "bypass"], USAGE, &["whole interface"]);
    daemon.refuses(&["set", "x", "udp", "off"], USAGE, &["no peer `x`", "there are: b"]);
    daemon.refuses(&["paths", "x"], USAGE, &["no peer `x`"]);
    daemon.refuses(&["reload"], USAGE, &["/etc/srd/srd.toml:2:7", "nothing was changed"]);
    daemon.refuses(&["top"], USAGE, &["needs a terminal", "srd status --json"]);
}

/// The unit reloads by the file, which may name another interface or socket than the unit.
#[test]
fn a_reload_by_the_configuration_file_reaches_the_daemon_at_its_socket() {
    let daemon = daemon();
    let file = daemon.directory.path().join("own.toml");
    let reload = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
        command.args(["reload", "-c"]).arg(&file).output().unwrap()
    };
    refused(&reload(), USAGE, &["own.toml"]);
    let socket = daemon.socket.display();
    let text = format!("[cloud]\n[control]\nsocket = \"{socket}\"\n");
    std::fs::write(&file, text).unwrap();
    refused(&reload(), USAGE, &["/etc/srd/srd.toml:2:7", "nothing was changed"]);
}

#[test]
fn without_a_daemon_the_message_says_how_to_start_one() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("none.sock");
    for command in ["status", "stats", "reload"] {
        let output = Command::new(env!("CARGO_BIN_EXE_srd"))
            .args([command, "--socket"])
            .arg(&socket)
            .output()
            .unwrap();
        refused(&output, 1, &["no daemon serves", "srd up -c"]);
    }
}

#[test]
fn who_may_not_is_told_what_would_help() {
    let daemon = daemon();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.lines().any(|line| line.starts_with("Uid:\t0\t")) {
        println!("skipped: it needs root");
        return;
    }
    // `cp` copies the program for another user in a separate process. If this process wrote the
    // copy, a child that another test starts could inherit the descriptor that is open for writing.
    let binary = daemon.directory.path().join("srd");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_srd")).arg(&binary).status();
    assert!(copied.unwrap().success());
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(daemon.directory.path(), open).unwrap();
    let mut command = Command::new(binary);
    command.arg("status").arg("--socket").arg(&daemon.socket).current_dir("/");
    command.uid(NOBODY).gid(NOBODY);
    refused(&command.output().unwrap(), MISSING, &["permission denied", "sudo"]);
}

#[test]
fn a_capture_goes_to_a_file_for_its_owner_or_to_a_pipe() {
    let daemon = daemon();
    let file = daemon.directory.path().join("a.pcapng");
    let write = ["capture", "-c", "3", "--inner", "--peer", "b"];
    let output = daemon.command(&write).arg("-w").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("3 packets captured, 0 dropped"), "{said}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let piped = daemon.command(&["capture", "-c", "3", "-w", "-"]).output().unwrap();
    let magic = [0x0A, 0x0D, 0x0D, 0x0A];
    assert_eq!((&piped.stdout[..4], &fs::read(&file).unwrap()[..4]), (&magic[..], &magic[..]));
    let none = daemon.directory.path().join("none/a.pcapng").display().to_string();
    daemon.refuses(&["capture", "-w", &none], USAGE, &["no such directory"]);
    daemon.refuses(&["capture", "--peer", "x", "-w", "-"], USAGE, &["no peer `x`"]);
    daemon.refuses(&["capture", "--inner", "--outer"], USAGE, &["--outer"]);
}

/// Regression: a file that existed kept its mode, so others could read the packets.
#[test]
fn regression_a_capture_into_a_file_that_exists_is_for_its_owner() {
    let daemon = daemon();
    let file = daemon.directory.path().join("a.pcapng");
    fs::write(&file, vec![7; 100_000]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let output = daemon.command(&["capture", "-c", "1"]).arg("-w").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let facts = fs::metadata(&file).unwrap();
    assert_eq!(facts.permissions().mode() & 0o777, 0o600);
    assert!(facts.len() < 100_000, "the earlier content is gone");
}

/// Regression: an error of the daemon was reported as one of standard output.
#[test]
fn regression_an_error_of_a_capture_names_what_failed() {
    let mut capture = Command::new(env!("CARGO_BIN_EXE_srd"));
    capture.args(["capture", "-w", "-", "--socket", "/no/such.sock"]);
    let output = capture.output().unwrap();
    refused(&output, 1, &["no daemon serves"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("standard output"));
    let daemon = daemon();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let capture = daemon.command(&["capture", "-w", "-"]).stdout(full()).output().unwrap();
    refused(&capture, 1, &["standard output", "No space"]);
    let capture = daemon.command(&["capture", "-w", "/dev/full"]).output().unwrap();
    refused(&capture, 1, &["cannot write /dev/full", "No space"]);
}

/// Regression: if the reader of standard output had left, the file stayed as it was, and the exit
/// code was 0.
#[test]
fn regression_a_change_of_the_peers_is_saved_although_nobody_reads_the_report() {
    let daemon = daemon();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut remove = daemon.command(&["peer", "remove", "b", "--save"]);
    let output = remove.stdout(writer).output().unwrap();
    refused(&output, 0, &[]);
    let saved = fs::read_to_string(daemon.directory.path().join("srd.toml")).unwrap();
    assert!(saved.contains("[interface]") && !saved.contains("[[peer]]"), "{saved}");
}

#[test]
fn ctrl_c_ends_a_capture_in_order() {
    let daemon = daemon();
    let file = daemon.directory.path().join("a.pcapng");
    let mut child =
        daemon.command(&["capture"]).arg("-w").arg(&file).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(|| fs::metadata(&file).is_ok_and(|facts| facts.len() > 500), &mut child);
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    wait_for_end(&mut child);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("packets captured, 0 dropped"), "{said}");
    let bytes = fs::read(&file).unwrap();
    assert_eq!(bytes[bytes.len() - 52..][..4], 5_u32.to_le_bytes(), "ends with statistics");
}

#[track_caller]
fn wait_for(mut is: impl FnMut() -> bool, child: &mut Child) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("it does not come");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn wait_for_end(child: &mut Child) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(status.success(), "{status}");
            return;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn top_draws_in_a_terminal_and_ends_with_q() {
    let daemon = daemon();
    let line = format!(
        "stty rows 40 cols 120; {} top --socket {}",
        env!("CARGO_BIN_EXE_srd"),
        daemon.socket.display()
    );
    let child = Command::new("script")
        .args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: no script (apt-get install bsdutils)");
        return;
    };
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let drawn = Arc::new(Mutex::new(Vec::new()));
    let drawing = Arc::clone(&drawn);
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut buffer) {
            drawing.lock().unwrap().extend_from_slice(&buffer[..count]);
        }
    });
    let text = || String::from_utf8_lossy(&drawn.lock().unwrap()).into_owned();
    wait_for(|| text().contains("choose"), &mut child);
    input.write_all(b"q").unwrap();
    wait_for_end(&mut child);
    reader.join().unwrap();
    let text = text();
    for word in ["srd0", "express", "choose"] {
        assert!(text.contains(word), "`{word}` is not in\n{text}");
    }
    // The terminal is restored: the program has left the alternate screen that it entered.
    assert!(text.contains("\u{1b}[?1049h") && text.trim_end().contains("\u{1b}[?1049l"), "{text}");
}

#[test]
fn keys_are_made_as_wireguard_makes_them() {
    let srd = |arguments: &[&str], input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_srd"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input may have ended before this write.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    };
    let text = |output: Output| String::from_utf8(output.stdout).unwrap();
    let (one, two) = (text(srd(&["genkey"], "")), text(srd(&["genkey"], "")));
    assert!(one.len() == 45 && one != two, "{one}{two}");
    assert_eq!(text(srd(&["genpsk"], "")).len(), 45);
    // The keys are those of RFC 7748, section 6.1.
    let alice = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n";
    let public = text(srd(&["pubkey"], alice));
    assert_eq!(public, "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n");
    let bad = srd(&["pubkey"], "secret words");
    refused(&bad, USAGE, &["no key", "44 characters of base64"]);
    assert!(!String::from_utf8_lossy(&bad.stderr).contains("secret"));
}

#[test]
fn a_key_into_a_file_that_others_may_read_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    for (mode, is_warned) in [(0o644, true), (0o600, false)] {
        let path = directory.path().join(format!("{mode:o}"));
        let file = fs::File::create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
        let output = command.arg("genkey").stdout(file).output().unwrap();
        let warning = String::from_utf8_lossy(&output.stderr).contains("umask 077");
        assert_eq!(warning, is_warned, "{mode:o}");
    }
}
