//! Lack of file descriptors of `srd nfs-proxy`: it is counted and logged, and the proxy goes on as
//! soon as there are descriptors again.
//!
//! The proxy is a process of its own, whose limit the test changes from outside. So descriptors and
//! threads of the test itself do not count.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::nfs_proxy::{Process, WAIT, connect, is_answered, server};

/// The half of a proxy beside the client, as a process.
struct Half {
    process: Process,
    at: SocketAddr,
    metrics: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Half {
    /// Starts the half, and waits until it serves: from then on it has the same descriptors until a
    /// client connects.
    fn start(server: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let notify = UnixDatagram::bind(&path).unwrap();
        notify.set_read_timeout(Some(WAIT)).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics = free.local_addr().unwrap();
        drop(free);
        let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
        command.args(["nfs-proxy", "--plain", "--any-user", "--unprivileged-port"]);
        command.args(["--connections", "1", "--listen", "127.0.0.1:0"]);
        command.args(["--metrics", &metrics.to_string(), &server.to_string()]);
        command.env("NOTIFY_SOCKET", &path).env_remove("RUST_LOG").stderr(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(process.0.stderr.take().unwrap()).lines();
        let written = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                *written.lock().unwrap() += &(line + "\n");
            }
        });
        let mut bytes = [0; 1024];
        let count = notify.recv(&mut bytes).unwrap();
        let ready = String::from_utf8_lossy(&bytes[..count]).into_owned();
        let ways = ready.split_once("STATUS=").unwrap().1;
        let at = ways.split_once(" to ").unwrap().0.parse().unwrap();
        Self { process, at, metrics, log }
    }

    fn limit(&self, current: Option<u64>) {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let current = current.or(maximum);
        let pid = Pid::from_child(&self.process.0);
        prlimit(Some(pid), Resource::Nofile, Rlimit { current, maximum }).unwrap();
    }

    /// Limits the process to the descriptors that it has, and so many more.
    fn permit(&self, more: usize) {
        let all = std::fs::read_dir(format!("/proc/{}/fd", self.process.0.id())).unwrap();
        let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u64>().ok();
        let used: BTreeSet<u64> = all.map(Result::unwrap).filter_map(number).collect();
        // A new descriptor gets the smallest number that is free, and below the limit.
        self.limit((0..).filter(|number| !used.contains(number)).nth(more));
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        let until = Instant::now() + WAIT;
        while !self.log().contains(text) {
            assert!(Instant::now() < until, "no `{text}` in {}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the counter of the process for a lack of descriptors.
    fn exhausted(&self) -> u64 {
        let mut stream = connect(self.metrics);
        let at = self.metrics;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value = text.lines().find_map(|of| of.strip_prefix("srd_nfs_files_exhausted_total "));
        value.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }
}

/// Whether the other end has closed a connection, for which this call waits.
fn is_closed(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// The process lacks a descriptor at each step from the connection of a client to the connection
/// to the server.
///
/// Regressions: a connection that could not be accepted was not counted. One that was accepted with
/// the last descriptor was refused with the advice to raise `--clients`.
#[test]
fn regression_a_half_goes_on_after_a_lack_of_descriptors_at_any_step() {
    let server = server();
    // The descriptors of a client: its socket with three duplicates, for its end, for replies, and
    // for the detection of silence; and the socket to the server with two duplicates.
    let steps = [
        ("no connection can be accepted: ", false),
        (" refused: ", true),
        ("its connection is ended: ", true),
        ("its connection is ended: ", true),
        ("no connection yet, calls wait: ", false),
        ("no connection yet, calls wait: ", false),
        ("no connection yet, calls wait: ", false),
    ];
    for (more, (text, ends)) in steps.into_iter().enumerate() {
        let half = Half::start(server);
        half.permit(more);
        let client = connect(half.at);
        // The call waits in the half, or in its sockets.
        let mut waits = &client;
        let is_sent = waits.write_all(&[0x80, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 0]).is_ok();
        half.wait_for(&format!("{text}Too many open files"));
        assert!(half.log().contains("raise the limit of open files"), "{}", half.log());
        if ends {
            assert!(is_closed(&client), "with {more} more descriptors");
        }
        half.limit(None);
        if ends {
            is_answered(&connect(half.at));
        } else {
            assert!(is_sent);
            let mut reply = [0; 12];
            waits.read_exact(&mut reply).unwrap();
            assert_eq!(reply, [0x80, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 1]);
            is_answered(&client);
        }
        assert!(half.exhausted() > 0);
    }
    // These are all descriptors of a client.
    let half = Half::start(server);
    half.permit(steps.len());
    is_answered(&connect(half.at));
    half.limit(None);
    assert_eq!(half.exhausted(), 0, "{}", half.log());
}

/// While there is no descriptor for a connection to the server, no call is lost, and attempts have
/// pauses.
#[test]
fn regression_calls_wait_while_there_is_no_descriptor_for_the_server() {
    let half = Half::start(server());
    half.permit(4);
    let client = connect(half.at);
    let mut stream = &client;
    let calls = 1..=50_u8;
    let (begun, wait) = (Instant::now(), Duration::from_secs(2));
    for number in calls.clone() {
        stream.write_all(&[0x80, 0, 0, 8, 0, 0, 0, number, 0, 0, 0, 0]).unwrap();
    }
    half.wait_for("no connection yet, calls wait: Too many open files");
    client.set_read_timeout(Some(wait)).unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    half.limit(None);
    client.set_read_timeout(Some(WAIT)).unwrap();
    let mut replies = BTreeSet::new();
    for _ in calls.clone() {
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[11], 1);
        replies.insert(reply[7]);
    }
    assert!(replies.into_iter().eq(calls));
    // There is a pause of at least 100 ms after each attempt.
    let (tries, ms) = (half.exhausted(), begun.elapsed().as_millis());
    assert!((2..=ms / 100 + 1).contains(&u128::from(tries)), "{tries} attempts in {ms} ms");
}
