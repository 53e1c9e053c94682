//! Processes that take over from a daemon, of which a test decides each line. Each is a process of
//! its own, or a process whose lines the test passes on.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use srd_daemon::handover::wire::LineConnection;

use super::pair::PATIENCE;

/// Version of the hand-over.
pub(crate) const VERSION: u32 = 4;
/// Environment variable with the path of the socket to which a relay connects.
const SOCKET: &str = "SRD_TEST_RELAY";

/// A process that requests a hand-over, and sends the lines of a test. It ends when this is
/// dropped. It closes all descriptors that it gets.
pub(crate) struct Successor {
    lines: BufReader<UnixStream>,
    process: Child,
}

impl Successor {
    /// Starts the process, which requests the hand-over in this form.
    pub(crate) fn requests(socket: &Path, version: u32) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut relay = Command::new(env::current_exe().unwrap());
        relay.args(["support::successor::relays_for_another_test", "--exact", "--nocapture"]);
        relay.env(SOCKET, socket).stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
        let process = relay.spawn().unwrap();
        let mut successor = Self { lines: BufReader::new(ours), process };
        successor.say(&request(version));
        successor
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.lines.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Reads the next line that is not empty. Descriptors come with empty lines.
    pub(crate) fn line(&mut self) -> String {
        line(&mut self.lines)
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = self.lines.get_ref().shutdown(Shutdown::Both);
        let _ = self.process.wait();
    }
}

/// Returns the request for a hand-over.
pub(crate) fn request(version: u32) -> String {
    format!("{{\"request\":\"take-over\",\"version\":{version}}}")
}

/// Reads the next line that is not empty.
pub(crate) fn line(stream: &mut BufReader<UnixStream>) -> String {
    let lines = stream.lines().map(Result::unwrap);
    { lines }.find(|line| !line.is_empty()).unwrap()
}

/// The process of a [`Successor`]: passes bytes on between its standard input, which is a socket,
/// and the control socket of a daemon. Ends at the end of its standard input only.
#[test]
fn relays_for_another_test() {
    let Some(socket) = env::var_os(SOCKET) else { return };
    let test: UnixStream = io::stdin().as_fd().try_clone_to_owned().unwrap().into();
    let daemon = UnixStream::connect(socket).unwrap();
    let (mut from, mut to) = (daemon.try_clone().unwrap(), test.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut bytes = [0; 512];
    while let Ok(length @ 1..) = (&test).read(&mut bytes) {
        // After the end of the connection to the daemon, this process goes on.
        let _ = (&daemon).write_all(&bytes[..length]);
    }
    std::process::exit(0);
}

/// A process `srd up --take-over` whose connection to the daemon passes through the test.
pub(crate) struct Relayed {
    successor: LineConnection,
    daemon: LineConnection,
}

impl Relayed {
    /// Adds the connection to the command that starts the process. The process has read its
    /// configuration when this calls `before`, and the daemon gets its request after that.
    pub(crate) fn start(
        mut command: Command,
        socket: &Path,
        before: impl FnOnce(),
    ) -> (Self, Child) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = command.arg("--by-input").stdin(OwnedFd::from(theirs)).spawn().unwrap();
        drop(command);
        let mut successor = Self::connection(ours);
        let request = successor.next_line().unwrap();
        before();
        let daemon = Self::connection(UnixStream::connect(socket).unwrap());
        let mut relayed = Self { successor, daemon };
        relayed.daemon.say(&request).unwrap();
        (relayed, process)
    }

    fn connection(stream: UnixStream) -> LineConnection {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        LineConnection::new(stream)
    }

    /// Passes the state of the daemon on, and everything else until the daemon has stopped.
    pub(crate) fn until_go(&mut self) {
        self.descriptors_behind("{\"ok\":", "}");
        self.answer("ready");
        self.descriptors_behind("go ", "");
    }

    /// Passes the remaining lines on, until the daemon has ended.
    pub(crate) fn until_end(mut self) {
        self.answer("done");
        while let Some(line) = self.daemon.line_or_end().unwrap() {
            self.successor.say(&line).unwrap();
        }
    }

    /// Passes a line of the daemon on, and the descriptors whose number it contains.
    fn descriptors_behind(&mut self, before: &str, behind: &str) {
        let line = self.daemon.next_line().unwrap();
        self.successor.say(&line).unwrap();
        let count = line.strip_prefix(before).and_then(|of| of.strip_suffix(behind));
        let count = count.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
        let all = self.daemon.descriptors(count).unwrap();
        self.successor.hand(&all.iter().map(AsFd::as_fd).collect::<Vec<_>>()).unwrap();
    }

    /// Passes a line of the process on, which must be this one.
    fn answer(&mut self, expected: &str) {
        let line = self.successor.next_line().unwrap();
        assert_eq!(line, expected);
        self.daemon.say(&line).unwrap();
    }
}
