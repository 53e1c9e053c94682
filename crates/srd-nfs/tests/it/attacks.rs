//! Clients and servers that violate the protocol.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support::{Server, call, reply};
use srd_nfs::accept::Acceptor;
use srd_nfs::dial::{Dialer, Target};
use srd_nfs::limits::Limits;
use srd_nfs::link::Pacing;
use srd_nfs::metrics::Metrics;
use srd_nfs::record;
use srd_nfs::{client, probe};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of a test. It is shorter than the 30 seconds after which TCP ends a connection whose
/// peer does not read.
const WAIT: Duration = Duration::from_secs(25);

fn client_half(to: SocketAddr, limits: Limits) -> (Acceptor, Metrics) {
    let target = Target { host: to.ip().to_string(), port: to.port() };
    let dialer = Arc::new(Dialer::new(target, None, Pacing::default()).unwrap());
    let metrics = Metrics::default();
    let options =
        client::Options { limits, connections_max: 4, pacing: Pacing::default(), any_user: true };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (client::start(listener, dialer, &options, &metrics).unwrap(), metrics)
}

fn connect(half: &Acceptor) -> TcpStream {
    let stream = TcpStream::connect(half.address().unwrap()).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Regression: the end of the connection waited for the lock of the replies, which was held by a
/// thread that wrote to the client.
#[test]
fn regression_a_client_that_reads_nothing_and_sends_nonsense_is_ended_at_once() {
    let server = Server::echo();
    let (near, metrics) = client_half(server.address, Limits::default());
    let mut client = connect(&near);
    for xid in 0..40 {
        client.write_all(call(xid, 1 << 20).bytes()).unwrap();
    }
    client.write_all(&[0xff; 64]).unwrap();
    eventually("its connection is ended", || metrics.clients.get() == 0);
    assert_eq!(metrics.clients_failed.get(), 1);
}

/// Regression: at the end of the process the waiting calls were dropped at once.
#[test]
fn regression_calls_of_a_client_that_waits_are_answered_when_all_ends() {
    let server = Server::slow(Duration::from_millis(300));
    let limits = Limits { outstanding_calls_max: 2, ..Limits::default() };
    let (near, metrics) = client_half(server.address, limits);
    let mut client = connect(&near);
    for xid in 0..4 {
        client.write_all(call(xid, 10).bytes()).unwrap();
    }
    eventually("the third waits", || metrics.waits.get() >= 1);
    let ending = thread::spawn(move || near.end(WAIT));
    for xid in 0..2 {
        let answer = record::read(&mut client, 4096).unwrap().expect("a reply");
        assert_eq!(answer, reply(&call(xid, 10)));
    }
    assert_eq!(ending.join().unwrap(), 0);
}

/// Regression: each received byte restarted the timeout for the whole answer.
#[test]
fn regression_a_server_that_drips_its_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let dripping = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[0x80, 0, 4, 0]).unwrap();
        while stream.write_all(&[0]).is_ok() {
            thread::sleep(Duration::from_millis(200));
        }
    });
    let target = Target { host: at.ip().to_string(), port: at.port() };
    let dialer = Dialer::new(target, None, Pacing::default()).unwrap();
    let begin = Instant::now();
    let error = probe::null_call_within(&dialer, Duration::from_secs(1))
        .expect_err("no answer")
        .to_string();
    assert!(error.contains("does not answer"), "{error}");
    assert!(begin.elapsed() < WAIT);
    dripping.join().unwrap();
}
