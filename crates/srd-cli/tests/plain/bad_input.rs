//! Bad input to every command: the exit code, and a message with the remedy.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const RUN: i32 = 1;
const USAGE: i32 = 2;
const MISSING: i32 = 3;
/// An account without privileges.
const NOBODY: u32 = 65534;

fn srd(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(args).stdin(Stdio::null()).env_remove("RUST_LOG");
    command.output().expect("the binary is built")
}

#[track_caller]
fn refused(args: &[&str], code: i32, says: &[&str]) {
    check(&srd(args), &args.join(" "), code, says);
}

#[track_caller]
fn check(output: &Output, what: &str, code: i32, says: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "srd {what}\n{error}");
    for text in says {
        assert!(error.contains(text), "srd {what}: `{text}` is not in\n{error}");
    }
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// Runs `srd` as a user without privileges, from a directory that all users may read.
fn srd_as_nobody(directory: &Path, args: &[&str]) -> Output {
    let binary = directory.join("srd");
    // `cp` copies the program in a separate process. If this process wrote the copy, a child that
    // another test starts could inherit the descriptor that is open for writing, and the copy could
    // not be executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_srd")).arg(&binary).status();
    assert!(copied.expect("cp").success());
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("an open directory");
    let mut command = Command::new(binary);
    command.args(args).current_dir(directory).stdin(Stdio::null());
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().expect("the copy runs")
}

#[test]
fn no_command_or_an_unknown_one() {
    refused(&[], USAGE, &["Usage"]);
    refused(&["fly"], USAGE, &["fly", "--help"]);
    refused(&["completions", "dos"], USAGE, &["bash"]);
    refused(&["hosts"], USAGE, &["the command is `srd control hosts`"]);
    refused(&["paths", "--json", "b"], USAGE, &["<PEER>", "writes JSON to the file `b`"]);
}

#[test]
fn perf_refuses_bad_numbers() {
    let client = |rest: &[&'static str]| {
        let mut args = vec!["perf", "client", "127.0.0.1"];
        args.extend(rest);
        args
    };
    refused(&client(&["--time", "soon"]), USAGE, &["--time", "500ms"]);
    refused(&client(&["--size", "1.5K"]), USAGE, &["--size", "64K"]);
    refused(&client(&["--size", "1G"]), USAGE, &["--size must be between"]);
    refused(&client(&["--streams", "0"]), USAGE, &["--streams", "1..=64"]);
    refused(&client(&["--paths", "300"]), USAGE, &["--paths", "256"]);
    refused(&client(&["--link-rate", "fast"]), USAGE, &["--link-rate", "100G"]);
    refused(&client(&["--transport", "sctp"]), USAGE, &["srd, tcp, udp"]);
    refused(&client(&["--mode", "rr", "--streams", "2"]), USAGE, &["--streams at 1"]);
    refused(&client(&["--port", "70000"]), USAGE, &["--port", "65535"]);
}

#[test]
fn regression_perf_refuses_bad_keys() {
    let client = ["perf", "client", "127.0.0.1"];
    let with = |rest: &[&'static str]| [&client[..], rest].concat();
    refused(&client, USAGE, &["--peer-key", "--encrypt off"]);
    refused(&with(&["--peer-key", "abc"]), USAGE, &["64 hexadecimal digits", "base64"]);
    refused(&with(&["--job-key-file", "/no/such/key"]), USAGE, &["/no/such/key", "no such file"]);
    refused(&with(&["--transport", "tcp", "--peer-key", "00"]), USAGE, &["--transport srd"]);
    // Regression: a job key was ignored, and the measurement ran without encryption.
    refused(&with(&["--transport", "udp", "--job-key", "00"]), USAGE, &["--transport srd"]);
    for key in ["--peer-key", "--job-key", "--job-key-file"] {
        refused(&with(&["--encrypt", "off", key, "00"]), USAGE, &["--encrypt off"]);
    }
    refused(&["perf", "server", "--key-file", "/no/such/dir/key"], USAGE, &["no such directory"]);
}

/// Regression: an incomplete file stayed, which the next start refused.
#[test]
fn regression_a_key_that_cannot_be_written_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    // The shell forbids each write to a file.
    let limited = "trap '' XFSZ; ulimit -f 0; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_srd"), "perf", "server"]);
    let output = command.args(["--bind", "127.0.0.1", "--key-file"]).arg(&file).output();
    check(&output.expect("a shell"), "perf server", RUN, &["cannot write", "key"]);
    assert!(!file.exists());
}

#[test]
fn perf_says_that_nobody_listens_within_seconds() {
    // The port is the client's port of an open connection: no program listens at it, and no program
    // can bind it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let free = near.local_addr().unwrap().port();
    for transport in ["srd", "tcp", "udp"] {
        let begun = Instant::now();
        let port = free.to_string();
        let args = ["perf", "client", "127.0.0.1", "--port", &port, "--transport", transport];
        let args = [&args[..], &["--encrypt", "off"]].concat();
        refused(&args, RUN, &["nothing listens there", "srd perf server", &port]);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }
}

#[test]
fn perf_tells_a_stranger_from_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let stranger = std::thread::spawn(move || {
        use std::io::Write as _;
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"220 mail.example.org ESMTP\r\n");
        // Reads until the client closes the connection. Closing with unread bytes would send a
        // reset, and the client could then lose the line that was sent.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let args = ["perf", "client", "127.0.0.1", "--port", &port, "--transport", "tcp"];
    refused(&args, RUN, &["no `srd perf`"]);
    stranger.join().unwrap();
}

#[test]
fn perf_server_says_that_its_port_is_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let args = ["perf", "server", "--bind", "127.0.0.1", "--port", &port];
    refused(&args, RUN, &["cannot listen", &port, "another --port"]);
}

#[test]
fn perf_cannot_resolve_nonsense() {
    let args = ["perf", "client", "no such host", "--encrypt", "off"];
    refused(&args, USAGE, &["cannot resolve `no such host`"]);
}

#[test]
fn sim_refuses_what_it_does_not_understand() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.toml");
    let path = file.to_str().unwrap();
    refused(&["sim", "run"], USAGE, &["SCENARIO"]);
    refused(&["sim", "run", "/no/such.toml"], USAGE, &["/no/such.toml", "no such file"]);
    refused(&["sim", "run", "nosuchname"], USAGE, &["nosuchname", "srd sim list"]);
    refused(&["sim", "run", "--topo", "/no/t"], USAGE, &["--tm"]);
    refused(&["sim", "run", "--topo", "/no/t", "--tm", "/no/m"], USAGE, &["/no/t"]);
    refused(&["sim", "list", "/no/such/dir"], USAGE, &["/no/such/dir"]);
    fs::write(&file, "colour = \"blue\"\n").unwrap();
    refused(&["sim", "run", path], USAGE, &["colour"]);
    let topology = "{ kind = \"leaf-spine\", leaves = 2, spines = 2, leaf_hosts = 2 }";
    fs::write(&file, format!("topology = {topology}\n")).unwrap();
    refused(&["sim", "run", path], USAGE, &["[[workload]]"]);
    refused(&["sim", "run", path, "--set", "nonsense"], USAGE, &["key.path=value"]);
    refused(&["sim", "run", path, "--set", "colour=1"], USAGE, &["colour"]);
    refused(&["sim", "run", path, "--transport", "quic"], USAGE, &["no transport `quic`", "tcp"]);
    refused(&["sim", "run", path, "--seeds", "0"], USAGE, &["seed"]);
    refused(&["sim", "run", path, "--seed=-1"], USAGE, &["--seed"]);
    refused(&["sim", "run", path, "--json", "/no/such/dir/x"], USAGE, &["no such directory"]);
    refused(&["sim", "run", path, "--out", "/proc/x"], USAGE, &["--out /proc/x"]);
}

#[test]
fn sim_exits_with_1_if_flows_stay_unfinished() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("short.toml");
    let text = "topology = { kind = \"leaf-spine\", leaves = 2, spines = 2, leaf_hosts = 2 }\n\
                horizon_us = 1.0\n[[workload]]\nkind = \"pairs\"\npairs = [[0, 3]]\n\
                bytes = 1000000\n";
    fs::write(&file, text).unwrap();
    refused(&["sim", "run", file.to_str().unwrap()], RUN, &["1 of 1 flows unfinished"]);
}

#[test]
fn sim_writes_the_fields_it_promises() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tiny.toml");
    let text = "topology = { kind = \"leaf-spine\", leaves = 2, spines = 2, leaf_hosts = 2 }\n\
                [[workload]]\nkind = \"pairs\"\npairs = [[0, 3]]\nbytes = 100000\n";
    fs::write(&file, text).unwrap();
    let args = ["sim", "run", file.to_str().unwrap(), "--json", "-"];
    let output = srd(&args);
    check(&output, "sim run", 0, &[]);
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let fields = "transport seed flows ideal_us ideal_wire_us fct_us max_over_ideal max_over_min \
                  jain packets packet_hops retransmitted_share drops sim_end_us wall_s cpu_s \
                  packet_hops_per_cpu_s peak_rss_bytes";
    for field in fields.split_whitespace() {
        assert!(!results[0][field].is_null(), "{field} is missing");
    }
    for field in ["min", "p50", "mean", "p99", "p999", "max"] {
        assert!(results[0]["fct_us"][field].is_number(), "fct_us.{field} is missing");
    }
}

#[test]
fn lab_refuses_what_no_fabric_can_be() {
    refused(&["lab", "up", "--leaves", "0"], USAGE, &["leaves = 0: must be 1 to 32"]);
    refused(&["lab", "up", "--mtu", "9001"], USAGE, &["mtu = 9001: must be 1280 to 9000"]);
    refused(&["lab", "up", "--name", "../x"], USAGE, &["lower-case letters and digits"]);
    refused(&["lab", "up", "--spines", "many"], USAGE, &["--spines"]);
    refused(&["lab", "fail", "leaf0"], USAGE, &["leaf0", "l0-s2"]);
    refused(&["lab", "exec", "nohost", "--", "true"], USAGE, &["nohost", "h0.1"]);
    refused(&["lab", "slow", "l0-s1", "fast"], USAGE, &["fast"]);
}

#[test]
fn lab_refuses_what_no_wire_can_be() {
    let impair = |options: &[&str], says: &str| {
        let args = [&["lab", "impair"], options, &["h0.0", "h1.0", "--", "true"]].concat();
        refused(&args, USAGE, &[says]);
    };
    impair(&["--loss", "101%"], "0 to 100");
    impair(&["--delay", "5ms..1ms"], "shorter");
    impair(&["--jitter", "soon"], "2.5ms");
    impair(&["--paths", "0"], "paths = 0: must be 1 to 1024");
    impair(&["--queue", "0"], "queue_packets_max = 0: must be 1 to 65536");
    impair(&["--json", "-"], "name a file");
    refused(&["lab", "impair", "h0.0", "h1.0"], USAGE, &["COMMAND"]);
    refused(&["lab", "impair", "h0", "h1.0", "--", "true"], USAGE, &["`h0`"]);
}

#[test]
fn lab_says_that_no_fabric_is_up() {
    if !is_root() {
        println!("skipped: it needs root");
        return;
    }
    let name = "nosuchfabric";
    refused(&["lab", "fail", "--name", name, "1"], RUN, &[name, "srd lab up"]);
    refused(&["lab", "exec", "--name", name, "h0.0", "--", "true"], RUN, &[name, "srd lab up"]);
    check(&srd(&["lab", "down", "--name", name]), "lab down", 0, &[]);
}

#[test]
fn lab_without_root_says_so() {
    let directory = tempfile::tempdir().unwrap();
    for args in [&["lab", "up"][..], &["lab", "status"], &["lab", "exec", "h0.0", "--", "true"]] {
        let output = srd_as_nobody(directory.path(), args);
        check(&output, &args.join(" "), MISSING, &["root", "sudo"]);
    }
}

/// Regression: these names were refused only at the end, and the results were lost.
#[test]
fn regression_a_name_that_cannot_be_of_a_file_is_refused_before_the_work() {
    let directory = tempfile::tempdir().unwrap();
    let slash = format!("{}/result/", directory.path().display());
    for name in ["", &slash] {
        refused(&["sim", "run", "one-byte-writes", "--json", name], USAGE, &["name a file"]);
    }
}

#[test]
fn demo_refuses_before_it_starts() {
    refused(&["demo", "--seconds-scale", "0"], USAGE, &["--seconds-scale", "0.1 and 20"]);
    refused(&["demo", "--out", "/no/such/dir/report.html"], USAGE, &["no such directory"]);
    refused(&["demo", "--out", "/tmp"], USAGE, &["is a directory"]);
    refused(&["demo", "--only", "f"], USAGE, &["--only"]);
}

#[test]
fn regression_commands_of_the_card_tell_wrong_settings_from_what_fails() {
    let cloud = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vpc/web-app.toml");
    let up = ["card", "up", cloud, "--check"];
    let up = |words: &[&str], says: &[&str]| refused(&[&up[..], words].concat(), USAGE, says);
    up(&["--vhost-user", "nosuch=/run/x.sock"], &["there is no instance `nosuch`"]);
    let (listens, joins) = ("--vhost-user", "--vhost-user-client");
    up(&[listens, "web=a", joins, "web=b"], &["`web` has two sockets", "name it once"]);
    up(&[listens, "web=a", listens, "web=b"], &["`web` has two sockets"]);
    up(&[listens, "web=a", joins, "app=a"], &["have the socket a", "its own"]);
    refused(&["card", "apply", "/no/such/file"], USAGE, &["/no/such/file"]);
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    refused(&["card", "apply", manifest], USAGE, &["Cargo.toml:", "unknown field", "remedy"]);
    refused(&["card", "set", "web", "--rx-usecs", "20000"], USAGE, &["20000", "10000"]);
    // Regression: the text was mixed with that of the program.
    refused(&["run", "--json", "-", "--", "true"], USAGE, &["standard output", "name a file"]);
    refused(&["profile", "nosuchif"], USAGE, &["nosuchif", "no such interface"]);
    refused(&["watch", "nosuchif", "--rate", "10G"], USAGE, &["nosuchif", "no such interface"]);
}

#[test]
fn commands_of_the_card_say_which_privilege_they_need() {
    let directory = tempfile::tempdir().expect("a directory");
    for words in [&["card", "up"][..], &["run", "--", "true"], &["card", "lab", "burst"]] {
        let output = srd_as_nobody(directory.path(), words);
        check(&output, &words.join(" "), MISSING, &["root", "sudo"]);
        let _ = fs::remove_file(directory.path().join("srd"));
    }
}

/// Nothing is downloaded: each of these commands fails before the first connection.
#[test]
fn lab_fetch_names_what_it_can_fetch_and_refuses_the_rest() {
    refused(&["lab", "fetch"], USAGE, &["<WHAT>"]);
    refused(&["lab", "fetch", "nosuch"], USAGE, &["nosuch", "hadoop", "spark", "dask", "jax"]);
    refused(&["lab", "fetch", "hadoop", "nosuch"], USAGE, &["nosuch"]);
    refused(&["lab", "fetch", "hadoop", "--cache", "/proc/none"], RUN, &["/proc/none"]);
    let help = srd(&["lab", "fetch", "--help"]);
    assert!(help.status.success());
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for part in ["--cache", "/var/cache/srd", "Maven Central", "SHA-256"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}
