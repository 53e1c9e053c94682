//! C programs, compiled like programs of users and run over loopback.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{LIMIT_S, LibraryDir, here, is_here};

/// Longest wait for a step of a program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the processor time of a child, in ticks of 10 ms.
fn cpu_ticks(child: &Child) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

impl LibraryDir {
    fn compile_pingpong(&self) -> PathBuf {
        self.compile("cc", &["-std=c11", "-lsrd"], &here("examples/pingpong.c"))
    }

    fn pingpong(&self, program: &Path, server: &[&str], client: &[&str]) -> (Output, bool) {
        // Starts the program directly: if a shell between were killed, the program would continue
        // to run.
        let command = |arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(["-a", "127.0.0.1"]).args(arguments);
            command.env("LD_LIBRARY_PATH", self.0.path()).stdin(Stdio::null());
            command
        };
        let mut serving = command(server).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(serving.stdout.take().unwrap());
        let mut address = String::new();
        said.read_line(&mut address).unwrap();
        let asked = command(&[client, &[address.trim()]].concat()).output().unwrap();
        if !asked.status.success() {
            serving.kill().unwrap();
        }
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        let served = serving.wait().unwrap().success() && rest.contains("is right");
        (asked, served)
    }
}

#[test]
fn two_processes_play_ping_pong_and_write_memory() {
    if !is_here("cc") {
        return;
    }
    let place = LibraryDir::new();
    let program = place.compile_pingpong();
    for size in ["0", "64", "20000", "500000"] {
        let (asked, served) = place.pingpong(&program, &[], &["-n", "200", "-s", size]);
        let error = String::from_utf8_lossy(&asked.stderr);
        assert!(asked.status.success() && served, "{size}: {error}");
        let said = String::from_utf8_lossy(&asked.stdout);
        assert!(said.contains("200 round trips") && said.contains("memory, right"), "{said}");
    }
}

#[test]
fn a_job_key_lets_in_who_has_it_and_nobody_else() {
    if !is_here("cc") {
        return;
    }
    let place = LibraryDir::new();
    let key = |name: &str, digit: &str| {
        let file = place.0.path().join(name);
        fs::write(&file, digit.repeat(64)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (key("right", "5"), key("wrong", "6"));
    let with = ["-k", right.as_str()];
    let program = place.compile_pingpong();
    let (asked, served) = place.pingpong(&program, &with, &["-k", &right, "-n", "100"]);
    assert!(asked.status.success() && served, "{}", String::from_utf8_lossy(&asked.stderr));
    // Each program waits for ten seconds, so both run at the same time.
    let others = [vec!["-n", "1"], vec!["-n", "1", "-k", wrong.as_str()]];
    std::thread::scope(|scope| {
        for other in &others {
            let (place, program, with) = (&place, &program, &with);
            scope.spawn(move || {
                let (asked, _) = place.pingpong(program, with, other);
                assert!(!asked.status.success(), "{other:?} was let in");
            });
        }
    });
}

#[test]
fn misuse_is_refused() {
    if is_here("cc") {
        LibraryDir::new().says("tests/misuse.c", "refused");
    }
}

#[test]
fn children_of_forks_amid_traffic_are_told_and_open_others() {
    if is_here("cc") {
        LibraryDir::new().says("tests/fork.c", "the parent goes on");
    }
}

#[test]
fn endpoints_behave_as_the_header_promises() {
    if is_here("cc") {
        LibraryDir::new().says("tests/behaviour.c", "as promised");
    }
}

#[test]
fn cpp_programs_compile_and_run_with_the_header() {
    if !is_here("c++") {
        return;
    }
    let place = LibraryDir::new();
    let source = place.0.path().join("program.cc");
    let text = "#include <srd.h>\nint main() {\n  srd_options o;\n  srd_options_init(&o);\n  \
        o.address = \"127.0.0.1\";\n  srd_endpoint *ep;\n  if (srd_open(&o, &ep)) return 1;\n  \
        srd_event e;\n  return srd_poll(ep, &e, 1, 0) || srd_close(ep);\n}\n";
    fs::write(&source, text).unwrap();
    let program = place.compile("c++", &["-std=c++17", "-lsrd"], &source);
    assert!(place.run(&program).status.success());
}

#[test]
fn the_static_library_needs_nothing_of_ours_at_run_time() {
    if !is_here("cc") {
        return;
    }
    let place = LibraryDir::new();
    let archive = place.0.path().join("libsrd.a");
    let source = here("tests/misuse.c");
    let libraries = ["-std=c11", archive.to_str().unwrap(), "-lgcc_s", "-lpthread", "-lm", "-ldl"];
    let program = place.compile("cc", &libraries, &source);
    let output = Command::new("timeout").arg(LIMIT_S).arg(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_client_whose_server_is_killed_is_told() {
    if !is_here("cc") {
        return;
    }
    let place = LibraryDir::new();
    let program = place.compile_pingpong();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["-a", "127.0.0.1"]);
        command.args(arguments).env("LD_LIBRARY_PATH", place.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut server = run(&[]);
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let mut client = run(&["-n", "10000000", address.trim()]);
    // When the program has used more processor time than its start takes, it is polling. Before, it
    // waits.
    let until = Instant::now() + PATIENCE;
    while cpu_ticks(&client) < 50 {
        assert!(client.try_wait().unwrap().is_none() && Instant::now() < until, "it does not ask");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.kill().unwrap();
    server.wait().unwrap();
    let told = client.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.code(), Some(1), "{error}");
    assert!(error.starts_with("ping: "), "{error}");
}
