//! Lack of file descriptors: it is counted, and the proxy goes on as soon as there are some again.
//!
//! The limit applies to a whole process, so each test runs again in a process of its own.

use crate::support::{Server, WAIT, call, eventually, listen, reply, target};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use srd_nfs::accept::Acceptor;
use srd_nfs::dial::Dialer;
use srd_nfs::limits::Limits;
use srd_nfs::link::Pacing;
use srd_nfs::metrics::Metrics;
use srd_nfs::{client, record, serve};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

/// Environment variable that is set in the process of one test.
const INNER: &str = "SRD_NFS_TEST_FILES";
/// Limit of open files in this process.
const FILES_MAX: u64 = 128;

/// Whether this is the process of one test. Otherwise runs the test of this name in such a process.
fn is_inner(test: &str) -> bool {
    if std::env::var_os(INNER).is_some() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(FILES_MAX), maximum }).unwrap();
        return true;
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{test}")]).env(INNER, "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// Opens files until no descriptor is left, and then closes `free` of them. Threads that begin at
/// this time close some descriptors, so it is done several times.
fn exhaust(free: usize) -> Vec<File> {
    let mut held = Vec::new();
    for _ in 0..10 {
        held.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    held.truncate(held.len() - free);
    held
}

/// Returns a socket that is not connected yet. To connect it takes no further descriptor.
fn socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
}

fn connected(socket: OwnedFd, half: &Acceptor) -> TcpStream {
    rustix::net::connect(&socket, &half.address().unwrap()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream
}

#[track_caller]
fn is_served(mut stream: &TcpStream) {
    stream.write_all(call(1, 100).bytes()).unwrap();
    let answer = record::read(&mut stream, 1 << 20).unwrap().expect("a reply");
    assert_eq!(answer, reply(&call(1, 100)));
}

fn dialer(to: &Server) -> Arc<Dialer> {
    Arc::new(Dialer::new(target(to.address), None, Pacing::default()).unwrap())
}

fn server_half(to: &Server) -> (Acceptor, Metrics) {
    let (metrics, options) =
        (Metrics::default(), serve::Options { any_user: true, ..Default::default() });
    (serve::start(listen(), dialer(to), None, options, &metrics).unwrap(), metrics)
}

/// Regression: a connection that could not be accepted was not counted.
#[test]
fn regression_connections_wait_until_there_is_a_descriptor() {
    if !is_inner("regression_connections_wait_until_there_is_a_descriptor") {
        return;
    }
    let server = Server::echo();
    let (half, metrics) = server_half(&server);
    let socket = socket();
    let (held, begun) = (exhaust(0), Instant::now());
    let stream = connected(socket, &half);
    eventually("it is counted", || metrics.files_exhausted.get() >= 3);
    // There is a pause of 100 ms after each attempt.
    let (tries, ms) = (metrics.files_exhausted.get(), begun.elapsed().as_millis());
    assert!(u128::from(tries) <= ms / 100 + 1, "{tries} attempts in {ms} ms");
    assert_eq!((metrics.clients_taken.get(), metrics.clients_refused.get()), (0, 0));
    drop(held);
    is_served(&stream);
}

/// Regression: a connection that was accepted with the last descriptor was refused with the advice
/// to raise `--clients`.
#[test]
fn regression_a_connection_with_the_last_descriptor_is_refused_and_counted() {
    if !is_inner("regression_a_connection_with_the_last_descriptor_is_refused_and_counted") {
        return;
    }
    let server = Server::echo();
    let (half, metrics) = server_half(&server);
    let sockets = [socket(), socket()];
    let held = exhaust(1);
    let [first, second] = sockets;
    let mut refused = connected(first, &half);
    assert!(matches!(refused.read(&mut [0; 1]), Ok(0) | Err(_)), "it is closed");
    eventually("it is counted", || metrics.clients_refused.get() == 1);
    assert_eq!((metrics.files_exhausted.get(), metrics.clients_taken.get()), (1, 0));
    drop(held);
    is_served(&connected(second, &half));
}

/// The half beside the client accepts a connection, but has no descriptor for a connection to the
/// server. The calls wait until there is one.
#[test]
fn regression_calls_wait_while_there_is_no_descriptor_for_the_server() {
    if !is_inner("regression_calls_wait_while_there_is_no_descriptor_for_the_server") {
        return;
    }
    let (server, metrics) = (Server::echo(), Metrics::default());
    let (limits, pacing) = (Limits::default(), Pacing::default());
    let options = client::Options { limits, connections_max: 1, pacing, any_user: true };
    let half = client::start(listen(), dialer(&server), &options, &metrics).unwrap();
    let socket = socket();
    // The socket, a duplicate with which to end it, and one for replies.
    let held = exhaust(3);
    let mut stream = connected(socket, &half);
    stream.write_all(call(1, 100).bytes()).unwrap();
    eventually("it is counted", || metrics.files_exhausted.get() >= 2);
    assert_eq!((metrics.clients.get(), server.calls()), (1, 0));
    drop(held);
    let answer = record::read(&mut stream, 1 << 20).unwrap().expect("a reply");
    assert_eq!(answer, reply(&call(1, 100)));
}
