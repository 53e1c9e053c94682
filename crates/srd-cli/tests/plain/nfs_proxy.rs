//! `srd nfs-proxy` as a process: limits of the system, and signals.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// How long anything here may take.
const WAIT: Duration = Duration::from_secs(60);

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers each call of eight bytes by a reply of its own.
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

/// Where a proxy listens, which it says in its log: `TIME ADDRESS to SERVER`.
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

/// A shell's limit of 1024 files was less than 256 clients take: then nobody could connect, whether
/// a client or not.
#[test]
fn regression_as_many_clients_as_are_permitted_have_files() {
    let server = server();
    let program = env!("CARGO_BIN_EXE_srd");
    let words = format!(
        "ulimit -S -n 64; \
         exec {program} nfs-proxy --plain --listen 127.0.0.1:0 --clients 100 {server}"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &words]).env_remove("RUST_LOG").stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let at = listens_at(&mut process);
    let clients: Vec<_> = (0..100).map(|_| connect(at)).collect();
    clients.iter().for_each(is_answered);
}

/// A stop in the middle of the handshake was its failure.
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

/// A certificate that nobody has the key of.
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
