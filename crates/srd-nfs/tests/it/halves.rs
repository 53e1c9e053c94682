//! Both halves with a stand-in for an NFS server, over sockets.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support::{Authority, Server, WAIT, call, eventually, listen, reply, target};
use srd_nfs::accept::Acceptor;
use srd_nfs::dial::{Dialer, TlsFiles};
use srd_nfs::limits::Limits;
use srd_nfs::link::Pacing;
use srd_nfs::metrics::Metrics;
use srd_nfs::record::{self, Record};
use srd_nfs::serve::{self, Certificates};
use srd_nfs::{client, probe};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn plain(to: SocketAddr) -> Arc<Dialer> {
    Arc::new(Dialer::new(target(to), None, Pacing::default()).unwrap())
}

fn client_half(dialer: Arc<Dialer>, limits: Limits) -> (Acceptor, Metrics) {
    let metrics = Metrics::default();
    let options =
        client::Options { limits, connections_max: 4, pacing: Pacing::default(), any_user: true };
    (client::start(listen(), dialer, &options, &metrics).unwrap(), metrics)
}

fn connect(half: &Acceptor) -> TcpStream {
    let stream = TcpStream::connect(half.address().unwrap()).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn send(mut stream: &TcpStream, record: &Record) {
    stream.write_all(record.bytes()).unwrap();
}

fn receive(mut stream: &TcpStream) -> Record {
    record::read(&mut stream, 16 << 20).unwrap().expect("a reply")
}

fn is_ended(mut stream: &TcpStream) -> bool {
    matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_))
}

#[test]
fn calls_and_replies_pass_through_both_halves_with_tls() {
    let (server, authority) = (Server::echo(), Authority::new());
    let own = authority.identity("nas.example", 30);
    let files = serve::TlsFiles { own, client_ca: Some(authority.file()), ..Default::default() };
    for cut in [None, Some(8192)] {
        let pacing = Pacing { nodelay: true, tls_record_bytes: cut };
        let certificates = Arc::new(Certificates::read(files.clone(), pacing).unwrap());
        let how = serve::Options { pacing, ..Default::default() };
        let metrics = Metrics::default();
        let far = serve::start(listen(), plain(server.address), Some(certificates), how, &metrics)
            .unwrap();
        let tls = TlsFiles {
            ca: authority.file(),
            own: Some(authority.identity("client", 30)),
            server_name: Some("nas.example".into()),
            ..Default::default()
        };
        let dialer = Dialer::new(target(far.address().unwrap()), Some(tls), pacing).unwrap();
        let (near, counted) = client_half(Arc::new(dialer), Limits::default());
        let stream = connect(&near);
        for (xid, bytes) in [(1, 0), (2, 1 << 10), (3, 9 << 10), (4, 1 << 20), (5, 3)] {
            let call = call(xid, bytes);
            send(&stream, &call);
            assert_eq!(receive(&stream), reply(&call), "{bytes} bytes");
        }
        eventually("all are counted", || (counted.calls.get(), counted.replies.get()) == (5, 5));
        assert_eq!(near.end(WAIT), 0);
        assert_eq!(far.end(WAIT), 0);
    }
}

/// Returns the error of the half beside the client for a server certificate with this validity and
/// name.
fn refusal(authority: &Authority, days: i64, name: &str, ca: &Authority) -> String {
    let server = Server::echo();
    let files =
        serve::TlsFiles { own: authority.identity("nas.example", days), ..Default::default() };
    let certificates = Arc::new(Certificates::read(files, Pacing::default()).unwrap());
    let how = serve::Options::default();
    let to = plain(server.address);
    let far = serve::start(listen(), to, Some(certificates), how, &Metrics::default()).unwrap();
    let tls = TlsFiles { ca: ca.file(), server_name: Some(name.into()), ..Default::default() };
    let dialer = Dialer::new(target(far.address().unwrap()), Some(tls), Pacing::default());
    probe::null_call(&dialer.unwrap()).expect_err("a refusal").to_string()
}

#[test]
fn certificates_that_do_not_fit_are_refused_in_words() {
    let (authority, other) = (Authority::new(), Authority::new());
    let expired = refusal(&authority, -1, "nas.example", &authority);
    assert!(expired.contains("has expired: renew it"), "{expired}");
    let name = refusal(&authority, 30, "other.example", &authority);
    assert!(name.contains("for another name: give --server-name"), "{name}");
    let issuer = refusal(&authority, 30, "nas.example", &other);
    assert!(issuer.contains("not from an issuer in the CA file"), "{issuer}");
}

#[test]
fn a_client_without_a_certificate_is_not_served_when_one_is_wanted() {
    let (server, authority) = (Server::echo(), Authority::new());
    let own = authority.identity("nas.example", 30);
    let files = serve::TlsFiles { own, client_ca: Some(authority.file()), ..Default::default() };
    let certificates = Arc::new(Certificates::read(files, Pacing::default()).unwrap());
    let how = serve::Options::default();
    let to = plain(server.address);
    let far = serve::start(listen(), to, Some(certificates), how, &Metrics::default()).unwrap();
    let name = Some("nas.example".to_owned());
    let tls = TlsFiles { ca: authority.file(), server_name: name, ..Default::default() };
    let dialer = Dialer::new(target(far.address().unwrap()), Some(tls), Pacing::default()).unwrap();
    let error = format!("{:#}", probe::null_call(&dialer).expect_err("not served"));
    assert!(error.contains("give --cert and --key"), "{error}");
    assert_eq!(server.calls(), 0);
}

#[test]
fn certificates_are_read_again_and_bad_ones_leave_the_old() {
    let authority = Authority::new();
    let own = authority.identity("nas.example", -1);
    let files = serve::TlsFiles { own: own.clone(), ..Default::default() };
    let certificates = Arc::new(Certificates::read(files, Pacing::default()).unwrap());
    let server = Server::echo();
    let (to, shown) = (plain(server.address), Some(Arc::clone(&certificates)));
    let how = serve::Options::default();
    let far = serve::start(listen(), to, shown, how, &Metrics::default()).unwrap();
    let name = Some("nas.example".to_owned());
    let tls = TlsFiles { ca: authority.file(), server_name: name, ..Default::default() };
    let dialer = Dialer::new(target(far.address().unwrap()), Some(tls), Pacing::default()).unwrap();
    assert!(probe::null_call(&dialer).is_err());
    authority.renew(&own, "nas.example", 30);
    certificates.reload().unwrap();
    probe::null_call(&dialer).unwrap();
    std::fs::write(&own.certificate, "nothing").unwrap();
    assert!(certificates.reload().is_err());
    probe::null_call(&dialer).unwrap();
}

#[test]
fn a_call_is_sent_again_when_the_server_ends_the_connection() {
    let server = Server::that_ends_after(1);
    let (near, metrics) = client_half(plain(server.address), Limits::default());
    let stream = connect(&near);
    for xid in 0..6 {
        let call = call(xid, 100);
        send(&stream, &call);
        assert_eq!(receive(&stream), reply(&call), "{xid}");
    }
    eventually("the server has ended connections", || metrics.upstreams_lost.get() >= 2);
    eventually("calls on their way were sent again", || metrics.calls_again.get() >= 2);
}

#[test]
fn connections_are_added_under_load_and_replies_stay_whole() {
    let server = Server::slow(Duration::from_millis(4));
    let (near, metrics) = client_half(plain(server.address), Limits::default());
    let stream = connect(&near);
    let deadline = Instant::now() + WAIT;
    let (mut sent, mut replies) = (0, 0);
    while metrics.upstreams.get() < 4 {
        assert!(Instant::now() < deadline, "{} connections", metrics.upstreams.get());
        while sent < replies + 32 {
            send(&stream, &call(sent, 20_000));
            sent += 1;
        }
        let got = receive(&stream);
        assert_eq!(got, reply(&call(got.xid(), 20_000)));
        replies += 1;
    }
    // The last connection is counted as added a moment after it is counted as open.
    eventually("three were added", || metrics.upstreams_added.get() == 3);
}

#[test]
fn giant_and_nonsensical_records_end_their_own_connection_only() {
    let server = Server::echo();
    let (near, metrics) = client_half(plain(server.address), Limits::default());
    let good = connect(&near);
    for bytes in
        [u32::MAX.to_be_bytes().to_vec(), vec![0; 8192], b"GET / HTTP/1.1\r\n\r\n".to_vec()]
    {
        let mut bad = connect(&near);
        bad.write_all(&bytes).unwrap();
        assert!(is_ended(&bad));
    }
    send(&good, &call(1, 10));
    assert_eq!(receive(&good), reply(&call(1, 10)));
    eventually("three are counted", || metrics.clients_failed.get() == 3);
}

#[test]
fn connections_beyond_the_limit_are_closed_and_places_are_given_back() {
    let server = Server::echo();
    let limits = Limits { clients_max: 3, ..Limits::default() };
    let (near, metrics) = client_half(plain(server.address), limits);
    let taken: Vec<_> = (0..3).map(|_| connect(&near)).collect();
    eventually("three are taken", || metrics.clients.get() == 3);
    for _ in 0..1000 {
        assert!(is_ended(&connect(&near)));
    }
    assert_eq!(metrics.clients_refused.get(), 1000);
    drop(taken);
    eventually("places are free", || metrics.clients.get() == 0);
    let stream = connect(&near);
    send(&stream, &call(1, 10));
    assert_eq!(receive(&stream), reply(&call(1, 10)));
}

/// Regression: connections without a handshake occupied all slots until their timeout, and then
/// connected again, so no client was served.
#[test]
fn regression_strangers_that_shake_no_hands_make_room_for_clients() {
    let (server, authority) = (Server::echo(), Authority::new());
    let own = authority.identity("nas.example", 30);
    let files = serve::TlsFiles { own, client_ca: Some(authority.file()), ..Default::default() };
    let certificates = Arc::new(Certificates::read(files, Pacing::default()).unwrap());
    let limits = Limits { clients_max: 3, ..Limits::default() };
    let how = serve::Options { limits, ..Default::default() };
    let metrics = Metrics::default();
    let far = serve::start(listen(), plain(server.address), Some(certificates), how, &metrics);
    let far = far.unwrap();
    let tls = TlsFiles {
        ca: authority.file(),
        own: Some(authority.identity("client", 30)),
        server_name: Some("nas.example".into()),
        ..Default::default()
    };
    let to = target(far.address().unwrap());
    let dialer = Arc::new(Dialer::new(to, Some(tls), Pacing::default()).unwrap());
    let clients: Vec<_> = (0..2).map(|_| dialer.connect().unwrap()).collect();
    eventually("two clients are served", || metrics.upstreams.get() == 2);
    let strangers: Vec<_> = (0..20).map(|_| connect(&far)).collect();
    eventually("all were taken", || metrics.clients_taken.get() == 22);
    assert!(strangers[..19].iter().all(is_ended), "the oldest gives its place up");
    assert_eq!(metrics.clients_refused.get(), 19);
    probe::null_call(&dialer).expect("a third client is served");
    eventually("it has left", || metrics.clients.get() == 2);
    // Connections of clients are not evicted.
    let third = dialer.connect().unwrap();
    eventually("three clients are served", || metrics.upstreams.get() == 3);
    assert!(is_ended(&connect(&far)));
    assert_eq!((metrics.clients_refused.get(), metrics.upstreams.get()), (21, 3));
    drop((clients, third, strangers));
}

#[test]
fn a_server_that_never_answers_makes_its_client_wait_and_no_other() {
    let silent = Server::silent();
    let limits = Limits { outstanding_calls_max: 2, ..Limits::default() };
    let (near, metrics) = client_half(plain(silent.address), limits);
    let stream = connect(&near);
    (0..3).for_each(|xid| send(&stream, &call(xid, 10)));
    eventually("the third waits", || metrics.waits.get() == 1);
    assert_eq!(metrics.calls.get(), 2);
    let other = connect(&near);
    send(&other, &call(9, 10));
    eventually("another client's call is taken", || metrics.calls.get() == 3);
    drop(stream);
    eventually("a client that left gives its place back", || metrics.clients.get() == 1);
}

#[test]
fn regression_a_client_that_has_sent_its_last_call_gets_all_replies_also_beyond_the_limit() {
    let server = Server::slow(Duration::from_millis(50));
    let limits = Limits { outstanding_calls_max: 1, ..Limits::default() };
    let (near, _) = client_half(plain(server.address), limits);
    let stream = connect(&near);
    let calls: Vec<_> = (0..5).map(|xid| call(xid, 10)).collect();
    calls.iter().for_each(|call| send(&stream, call));
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    for call in &calls {
        assert_eq!(receive(&stream), reply(call));
    }
    assert!(is_ended(&stream));
    assert_eq!(near.end(WAIT), 0);
}

#[test]
fn calls_on_their_way_are_answered_when_all_ends() {
    let server = Server::slow(Duration::from_millis(300));
    let (near, metrics) = client_half(plain(server.address), Limits::default());
    let stream = connect(&near);
    send(&stream, &call(1, 100));
    eventually("the call is on its way", || metrics.calls.get() == 1 && server.calls() == 1);
    let ending = std::thread::spawn(move || near.end(WAIT));
    assert_eq!(receive(&stream), reply(&call(1, 100)));
    assert_eq!(ending.join().unwrap(), 0);
    assert!(is_ended(&stream));
}

#[test]
fn a_client_that_reads_no_replies_does_not_hold_up_the_end_or_another() {
    let server = Server::echo();
    let (near, metrics) = client_half(plain(server.address), Limits::default());
    let slow = connect(&near);
    slow.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let large = call(1, 1 << 20);
    for xid in 0..64u32 {
        let mut bytes = large.bytes().to_vec();
        bytes[4..8].copy_from_slice(&xid.to_be_bytes());
        if (&slow).write_all(&bytes).is_err() {
            break;
        }
    }
    let other = connect(&near);
    send(&other, &call(7, 10));
    assert_eq!(receive(&other), reply(&call(7, 10)));
    drop(other);
    eventually("one is left", || metrics.clients.get() == 1);
    assert!(near.end(Duration::from_millis(100)) <= 1);
    eventually("its threads are gone", || metrics.clients.get() == 0);
}

#[test]
fn a_port_behind_which_there_is_no_nfs_is_named() {
    let silent = listen();
    let dialer = plain(silent.local_addr().unwrap());
    let closing = std::thread::spawn(move || drop(silent.accept()));
    let error = format!("{:#}", probe::null_call(&dialer).expect_err("no server"));
    assert!(error.contains("is an NFS server running behind it"), "{error}");
    closing.join().unwrap();
}

#[test]
fn counters_are_served_as_openmetrics() {
    let metrics = Metrics::default();
    metrics.calls.inc_by(3);
    let deadline = Instant::now() + WAIT;
    let (at, _server) = loop {
        let at = listen().local_addr().unwrap();
        match metrics.serve(at, false) {
            Ok(server) => break (at, server),
            // Another test took the port first.
            Err(error) => {
                let is_taken = error.kind() == std::io::ErrorKind::AddrInUse;
                assert!(is_taken && Instant::now() < deadline, "{error}");
            }
        }
    };
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("\nsrd_nfs_calls_total 3\n"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}
