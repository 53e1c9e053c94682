//! `srd nfs-proxy` as a process: limits of the system, options, sockets of systemd, and signals.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Maximum time that a test waits for one event.
const WAIT: Duration = Duration::from_secs(120);

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that answers each record of eight bytes with a reply of eight bytes.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut call = [0; 12];
                while stream.read_exact(&mut call).is_ok() {
                    call[11] = 1;
                    stream.write_all(&call).unwrap();
                }
            });
        }
    });
    at
}

/// Returns the address at which a proxy listens, from the line `TIME ADDRESS to SERVER` of its log.
fn listens_at(process: &mut Process) -> SocketAddr {
    let mut lines = BufReader::new(process.0.stderr.take().unwrap()).lines();
    let address = |line: String| -> Option<SocketAddr> {
        let (before, _) = line.split_once(" to ")?;
        before.rsplit(' ').next()?.parse().ok()
    };
    let found = lines.by_ref().map_while(Result::ok).find_map(address);
    thread::spawn(move || lines.for_each(drop));
    found.expect("it says where it listens")
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream
}

fn is_answered(mut stream: &TcpStream) {
    stream.write_all(&[0x80, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0]).unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply, [0x80, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 1]);
}

/// Regression: the usual limit of 1024 open files was too low for 256 clients. At the limit,
/// neither clients nor other programs could connect.
#[test]
fn regression_as_many_clients_as_are_permitted_have_files() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_srd");
    let words = format!(
        "ulimit -S -n 64; \
         exec {program} nfs-proxy --plain --any-user --unprivileged-port --listen 127.0.0.1:0 \
         --clients 100 {server}"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &words]).env_remove("RUST_LOG").stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let at = listens_at(&mut process);
    let clients: Vec<_> = (0..100).map(|_| connect(at)).collect();
    clients.iter().for_each(is_answered);
}

/// Regression: if the process was stopped by SIGSTOP during the TLS handshake, the handshake failed
/// after SIGCONT.
#[test]
fn regression_a_process_that_was_stopped_goes_on_with_its_handshake() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, CA).unwrap();
    let to = silent.local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(["nfs-proxy", "--probe", "--ca", ca.to_str().unwrap(), &to]);
    let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
    let (accepted, _) = silent.accept().unwrap();
    accepted.set_read_timeout(Some(WAIT)).unwrap();
    assert_eq!(accepted.peek(&mut [0]).unwrap(), 1, "it has begun");
    let pid = Pid::from_child(&process.0);
    for signal in [Signal::STOP, Signal::CONT] {
        thread::sleep(Duration::from_millis(300));
        kill_process(pid, signal).unwrap();
    }
    thread::sleep(Duration::from_millis(300));
    if process.0.try_wait().unwrap().is_some() {
        let mut error = String::new();
        process.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        panic!("it ended: {error}");
    }
}

#[track_caller]
fn refused(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    let output = command.arg("nfs-proxy").args(words).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
    error
}

/// Regression: every machine could act as any user of the NFS server, because the proxy beside the
/// server accepted connections without a client certificate.
#[test]
fn regression_a_half_beside_the_server_must_know_its_clients() {
    let serve = ["--serve", "--to", "127.0.0.1:2049", "--cert", "nas.pem", "--key", "nas.key"];
    let error = refused(&serve);
    assert!(error.contains("give --client-ca FILE") && error.contains("--any-client"), "{error}");
    let both = [&serve[..], &["--any-client", "--client-ca", "ca.pem"]].concat();
    assert!(refused(&both).contains("cannot be used with"));
    assert!(refused(&[&serve[..], &["--client-name", "a"]].concat()).contains("--client-ca"));
    // With `--any-client`, the arguments are valid, and the error is that the certificate's file
    // does not exist.
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.current_dir(&directory).arg("nfs-proxy").args(serve).arg("--any-client");
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("nas.pem"), "{error}");
}

/// Regression: if a user's program listened at the port before the proxy, root mounted from that
/// program.
#[test]
fn regression_a_half_beside_the_client_listens_where_only_root_can() {
    for port in ["20049", "1024", "0"] {
        let error = refused(&["--plain", "--listen", &format!("127.0.0.1:{port}"), "127.0.0.1"]);
        assert!(error.contains("give --unprivileged-port"), "{error}");
    }
}

/// Regression: the message was that the server is not on this machine.
#[test]
fn regression_a_name_that_is_not_resolved_is_named() {
    let words = ["--plain", "--unprivileged-port", "--listen", "127.0.0.1:0", "no such host"];
    let error = refused(&words);
    assert!(error.contains("cannot resolve `no such host`"), "{error}");
    let error = refused(&[&words[..4], &["192.0.2.1"]].concat());
    assert!(error.contains("--trust-network"), "{error}");
}

/// Returns the command of a proxy beside the client that inherits a listening socket, as systemd
/// passes it.
fn with_socket(socket: &TcpListener, words: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let hand_over = "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\" 3<&0 </dev/null";
    let program = env!("CARGO_BIN_EXE_srd");
    command.args(["-c", hand_over, "sh", program, "nfs-proxy", "--plain", "--any-user"]);
    command.args(words).stdin(OwnedFd::from(socket.try_clone().unwrap())).stderr(Stdio::piped());
    command.env_remove("RUST_LOG");
    command
}

#[test]
fn a_socket_that_systemd_holds_is_served_by_one_process_after_the_other() {
    let server = server().to_string();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    for _ in 0..2 {
        // The client connects before the proxy runs, and waits in the backlog of the socket.
        let client = connect(at);
        let mut half = with_socket(&socket, &["--unprivileged-port", &server]);
        let mut process = Process(half.spawn().unwrap());
        assert_eq!(listens_at(&mut process), at);
        is_answered(&client);
    }
    let output = with_socket(&socket, &[&server]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("--unprivileged-port"), "{error}");
    let words = ["--unprivileged-port", "--listen", "127.0.0.1:1", &server];
    let output = with_socket(&socket, &words).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("ListenStream="), "{error}");
}

/// Regression: the process panicked if its log was on a full disk.
#[test]
fn regression_systemd_is_told_when_connections_are_taken_and_when_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    let received = || {
        let mut bytes = [0; 1024];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let server = server().to_string();
    // The log cannot be written: /dev/full behaves like a file on a full disk.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(["nfs-proxy", "--plain", "--any-user", "--unprivileged-port", "--listen"]);
    command.args(["127.0.0.1:0", &server]).env("NOTIFY_SOCKET", &path).stderr(full);
    let mut process = Process(command.spawn().unwrap());
    let ready = received();
    assert!(ready.starts_with("READY=1\n"), "{ready}");
    let at = ready.split_once("STATUS=").unwrap().1.split_once(" to ").unwrap().0.parse().unwrap();
    is_answered(&connect(at));
    kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
    assert_eq!(received(), "STOPPING=1");
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
}

/// Returns the child processes of a process.
fn children(process: &Process) -> Vec<Pid> {
    let parent = process.0.id().to_string();
    let all = std::fs::read_dir("/proc").unwrap().map_while(Result::ok);
    let of_ours = |name: String| {
        let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let is_ours = fields.next() != Some("Z") && fields.next() == Some(&parent);
        is_ours.then(|| name.parse().ok().and_then(Pid::from_raw)).flatten()
    };
    all.filter_map(|entry| of_ours(entry.file_name().into_string().ok()?)).collect()
}

#[test]
fn without_systemd_a_process_holds_the_socket_and_starts_the_half_again() {
    let server = server().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(["nfs-proxy", "--keep", "--plain", "--any-user", "--unprivileged-port"]);
    command.args(["--listen", "127.0.0.1:0", &server]).stdout(Stdio::piped());
    let mut process =
        Process(command.stderr(Stdio::piped()).env_remove("RUST_LOG").spawn().unwrap());
    let at = listens_at(&mut process);
    let mut said = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    is_answered(&connect(at));
    let first = children(&process);
    kill_process(first[0], Signal::KILL).unwrap();
    is_answered(&connect(at));
    let second = children(&process);
    assert_ne!(first, second);
    kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(at).is_err(), "its half has ended as well");
    // After a usage error, `--keep` does not start the proxy again.
    assert!(refused(&["--keep", "--plain", "--listen", "127.0.0.1:0", "x"]).contains("give"));
}

/// After SIGUSR1, the proxy waits for its last client, because an unmounted file system may still
/// be in use in another mount namespace.
#[test]
fn sigusr1_ends_a_half_when_its_last_client_has_left() {
    let server = server().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(["nfs-proxy", "--plain", "--any-user", "--unprivileged-port", "--listen"]);
    command.args(["127.0.0.1:0", &server]).stderr(Stdio::piped()).env_remove("RUST_LOG");
    let mut process = Process(command.spawn().unwrap());
    let at = listens_at(&mut process);
    let client = connect(at);
    is_answered(&client);
    kill_process(Pid::from_child(&process.0), Signal::USR1).unwrap();
    thread::sleep(Duration::from_secs(6));
    is_answered(&client);
    drop(client);
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
}

/// A certificate of an authority whose private key was not kept.
const CA: &str = "\
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUMGOmdNgz1Mn6ukMspdHrTUgOmT4wCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjYwMzQ3MjRaGA8yMTI2MTEwMjAzNDcy
NFowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABEBf
gdydhz+5d4nffn7mJLw3UChOyAnI702es3YYfdDC/QDo3xGimSklrhKlhEDFCaVM
oORhlnRFKh8M/IMfkbOjUzBRMB0GA1UdDgQWBBShF1op/29+/ujkML72hA3zyrw/
2zAfBgNVHSMEGDAWgBShF1op/29+/ujkML72hA3zyrw/2zAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIQC2uzh08NBlS2rQC6YnC9UC3jIcTar9qn0E
HhIQi4rUoAIgHQ3Jk9FXN5ohSqWDI/fj5oe+KjwYKn7EugpeCjEdzGI=
-----END CERTIFICATE-----\n";
