//! Admission of connections: by port, address and certificate, and the eviction from slots.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support::{Authority, Server, WAIT, call, eventually, listen, reply, target};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use srd_nfs::accept::Acceptor;
use srd_nfs::dial::{Dialer, TlsFiles};
use srd_nfs::limits::Limits;
use srd_nfs::link::Pacing;
use srd_nfs::metrics::Metrics;
use srd_nfs::serve::{self, Certificates};
use srd_nfs::{client, probe, record, reserved};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn plain(to: SocketAddr) -> Dialer {
    Dialer::new(target(to), None, Pacing::default()).unwrap()
}

/// Connects from `from`, and from a port below 1024 if `is_reserved`.
fn connect(half: &Acceptor, from: Ipv4Addr, is_reserved: bool) -> TcpStream {
    let flags = SocketFlags::CLOEXEC;
    let bound = |port: u16| {
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        let bound = rustix::net::bind(&socket, &SocketAddr::from((from, port)));
        bound.is_ok().then_some(socket)
    };
    let mut ports = if is_reserved { reserved::PORTS } else { 0..=0 };
    let socket = ports.find_map(bound).expect("a free port");
    rustix::net::connect(&socket, &half.address().unwrap()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream
}

fn is_ended(mut stream: &TcpStream) -> bool {
    matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_))
}

#[track_caller]
fn is_served(mut stream: &TcpStream) {
    stream.write_all(call(1, 100).bytes()).unwrap();
    let answer = record::read(&mut stream, 1 << 20).unwrap().expect("a reply");
    assert_eq!(answer, reply(&call(1, 100)));
}

/// Whether ports below 1024 can be bound; prints the reason if not.
fn may_have_reserved_ports() -> bool {
    reserved::check().inspect_err(|error| println!("skipped: no port below 1024: {error}")).is_ok()
}

fn client_half(to: &Server, any_user: bool) -> (Acceptor, Metrics) {
    let metrics = Metrics::default();
    let (limits, pacing) = (Limits::default(), Pacing::default());
    let options = client::Options { limits, connections_max: 1, pacing, any_user };
    let dialer = Arc::new(plain(to.address));
    (client::start(listen(), dialer, &options, &metrics).unwrap(), metrics)
}

/// Starts the half beside the server without TLS, or with TLS that requires no certificate of
/// clients.
fn server_half(to: &Server, limits: Limits, authority: Option<&Authority>) -> (Acceptor, Metrics) {
    let certificates = authority.map(|authority| {
        let own = authority.identity("nas.example", 30);
        let files = serve::TlsFiles { own, ..Default::default() };
        Arc::new(Certificates::read(files, Pacing::default()).unwrap())
    });
    let metrics = Metrics::default();
    let options = serve::Options { limits, ..Default::default() };
    let dialer = Arc::new(plain(to.address));
    (serve::start(listen(), dialer, certificates, options, &metrics).unwrap(), metrics)
}

/// Regression: any user of the machine could act as any NFS user, over that user's own connection.
#[test]
fn regression_users_other_than_root_are_not_served_without_tls() {
    let server = Server::echo();
    for (half, metrics) in
        [client_half(&server, false), server_half(&server, Limits::default(), None)]
    {
        assert!(is_ended(&connect(&half, HERE, false)));
        eventually("it is counted", || metrics.clients_unprivileged.get() == 1);
        assert_eq!((metrics.clients_taken.get(), server.calls()), (0, 0));
    }
    let (any, metrics) = client_half(&server, true);
    is_served(&connect(&any, HERE, false));
    assert_eq!(metrics.clients_unprivileged.get(), 0);
}

#[test]
fn the_kernel_is_served_which_connects_from_a_port_below_1024() {
    if !may_have_reserved_ports() {
        return;
    }
    let server = Server::echo();
    for (half, _metrics) in
        [client_half(&server, false), server_half(&server, Limits::default(), None)]
    {
        is_served(&connect(&half, HERE, true));
    }
}

/// Regression: exports had to be `insecure`, and any user of the server's machine could then use
/// them.
#[test]
fn regression_the_server_is_asked_from_a_port_below_1024() {
    if !may_have_reserved_ports() {
        return;
    }
    let nfsd = listen();
    let metrics = Metrics::default();
    let missed = metrics.upstreams_unprivileged.clone();
    let dialer = plain(nfsd.local_addr().unwrap()).from_reserved_ports(missed);
    let options = serve::Options { any_user: true, ..Default::default() };
    let half = serve::start(listen(), Arc::new(dialer), None, options, &metrics).unwrap();
    let _client = connect(&half, HERE, false);
    let (_stream, from) = nfsd.accept().unwrap();
    assert!(from.port() < 1024, "{from}");
    assert_eq!(metrics.upstreams_unprivileged.get(), 0);
}

/// Returns an address of this machine that is not a loopback address, in the network of this test.
fn another_address() -> Ipv4Addr {
    let ip = |words: &str| {
        let done = std::process::Command::new("ip").args(words.split(' ')).status().unwrap();
        assert!(done.success(), "ip {words}");
    };
    ip("link set lo up");
    ip("address add 192.0.2.77/32 dev lo");
    Ipv4Addr::new(192, 0, 2, 77)
}

/// Regression: one address could occupy all slots and block all other addresses.
#[test]
fn regression_an_address_has_a_part_of_the_places() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: root, for an address of another machine");
        return;
    }
    let (server, limits) = (Server::echo(), Limits { address_clients_max: 2, ..Limits::default() });
    let metrics = Metrics::default();
    let options = serve::Options { limits, any_user: true, ..Default::default() };
    let dialer = Arc::new(plain(server.address));
    let half = serve::start(listen(), dialer, None, options, &metrics).unwrap();
    let own: Vec<_> = (0..2).map(|_| connect(&half, HERE, false)).collect();
    own.iter().for_each(is_served);
    assert!(is_ended(&connect(&half, HERE, false)), "both keep their places");
    assert_eq!(metrics.clients_address_refused.get(), 1);
    assert!(is_ended(&connect(&half, Ipv4Addr::new(127, 0, 0, 2), false)), "loopback is one");
    let other = connect(&half, another_address(), false);
    is_served(&other);
    own.iter().for_each(is_served);
    drop(own);
    eventually("places are given back", || metrics.clients.get() == 1);
    is_served(&connect(&half, HERE, false));
    drop(other);
}

/// At the limit of an address, its own connections that have sent nothing are evicted.
#[test]
fn a_silent_connection_gives_way_to_another_of_its_address() {
    let (server, limits) = (Server::echo(), Limits { address_clients_max: 2, ..Limits::default() });
    let metrics = Metrics::default();
    let options = serve::Options { limits, any_user: true, ..Default::default() };
    let dialer = Arc::new(plain(server.address));
    let half = serve::start(listen(), dialer, None, options, &metrics).unwrap();
    let silent = connect(&half, HERE, false);
    let first = connect(&half, HERE, false);
    is_served(&first);
    let second = connect(&half, HERE, false);
    assert!(is_ended(&silent));
    is_served(&second);
    is_served(&first);
    assert_eq!((metrics.clients_refused.get(), metrics.clients_address_refused.get()), (1, 0));
}

/// Regression: a handshake, which every stranger can complete, was enough to keep a slot for ever.
#[test]
fn regression_strangers_that_send_no_record_make_room_for_clients() {
    let (server, authority) = (Server::echo(), Authority::new());
    let limits = Limits { clients_max: 3, ..Limits::default() };
    let (half, metrics) = server_half(&server, limits, Some(&authority));
    let tls = TlsFiles {
        ca: authority.file(),
        server_name: Some("nas.example".into()),
        ..Default::default()
    };
    let to = target(half.address().unwrap());
    let dialer = Dialer::new(to, Some(tls), Pacing::default()).unwrap();
    let link = || dialer.connect().unwrap();
    let served = |(from, to): &mut (_, srd_nfs::link::WriteHalf)| {
        to.send(call(7, 100).bytes()).unwrap();
        assert_eq!(record::read(from, 1 << 20).unwrap().expect("a reply"), reply(&call(7, 100)));
    };
    let mut silent: Vec<_> = (0..3).map(|_| link().split()).collect();
    eventually("three strangers are taken", || metrics.upstreams.get() == 3);
    // Half a record does not count.
    silent[2].1.send(&call(7, 100).bytes()[..50]).unwrap();
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = link().split();
            served(&mut client);
            client
        })
        .collect();
    eventually("all strangers gave way", || metrics.clients_refused.get() == 3);
    for (from, _) in &mut silent {
        assert!(!matches!(from.read(&mut [0; 64]), Ok(1..)), "it has ended");
    }
    // Connections of clients are not evicted.
    dialer.connect().map(drop).expect_err("all places are kept");
    clients.iter_mut().for_each(served);
}

/// Sends a call from a client with these TLS files to a server's half with these files. Returns the
/// result or the refusal.
fn shown(server: &Server, files: serve::TlsFiles, tls: TlsFiles) -> Result<(), String> {
    let certificates = Arc::new(Certificates::read(files, Pacing::default()).unwrap());
    let (options, metrics) = (serve::Options::default(), Metrics::default());
    let dialer = Arc::new(plain(server.address));
    let half = serve::start(listen(), dialer, Some(certificates), options, &metrics).unwrap();
    let to = target(half.address().unwrap());
    let dialer = Dialer::new(to, Some(tls), Pacing::default()).unwrap();
    probe::null_call(&dialer).map_err(|error| format!("{error:#}"))
}

fn server_files(authority: &Authority) -> serve::TlsFiles {
    serve::TlsFiles {
        own: authority.identity("nas.example", 30),
        client_ca: Some(authority.file()),
        ..Default::default()
    }
}

fn client_files(authority: &Authority, name: &str, crl: Option<PathBuf>) -> TlsFiles {
    TlsFiles {
        ca: authority.file(),
        crl,
        own: Some(authority.identity(name, 30)),
        server_name: Some("nas.example".into()),
    }
}

#[test]
fn a_client_needs_one_of_the_names_that_are_given() {
    let (server, authority) = (Server::echo(), Authority::new());
    let client_names = vec!["a.example".to_owned(), "b.example".to_owned()];
    let files = serve::TlsFiles { client_names, ..server_files(&authority) };
    for name in ["a.example", "b.example"] {
        shown(&server, files.clone(), client_files(&authority, name, None)).unwrap();
    }
    let error = shown(&server, files, client_files(&authority, "c.example", None)).unwrap_err();
    assert!(error.contains("a name of its --client-name"), "{error}");
}

#[test]
fn a_revoked_certificate_is_refused_on_both_sides() {
    let (server, authority) = (Server::echo(), Authority::new());
    let files = server_files(&authority);
    let good = client_files(&authority, "a.example", None);
    let bad = client_files(&authority, "b.example", None);
    let crl = Some(authority.revoke(&[bad.own.as_ref().unwrap()]));
    let with_list = serve::TlsFiles { crl: crl.clone(), ..files.clone() };
    shown(&server, with_list.clone(), TlsFiles { crl, ..good.clone() }).unwrap();
    let error = shown(&server, with_list, bad).unwrap_err();
    assert!(error.contains("our certificate is revoked"), "{error}");
    let crl = Some(authority.revoke(&[&files.own]));
    let error = shown(&server, files.clone(), TlsFiles { crl, ..good.clone() }).unwrap_err();
    assert!(error.contains("certificate is revoked: give it another one"), "{error}");
    let other = Authority::new();
    let crl = Some(other.revoke(&[]));
    let error = shown(&server, files, TlsFiles { crl, ..good }).unwrap_err();
    assert!(error.contains("no list of the issuer"), "{error}");
}

/// Regression: a half that ended shut down the socket that systemd holds, so the next half could
/// not be reached.
#[test]
fn regression_the_end_of_a_half_leaves_a_socket_that_another_process_holds() {
    let (server, held) = (Server::echo(), listen());
    let start = || {
        let metrics = Metrics::default();
        let options = serve::Options { any_user: true, ..Default::default() };
        let (socket, dialer) = (held.try_clone().unwrap(), Arc::new(plain(server.address)));
        serve::start(socket, dialer, None, options, &metrics).unwrap()
    };
    let first = start();
    is_served(&connect(&first, HERE, false));
    assert_eq!(first.end(WAIT), 0);
    let waiting = TcpStream::connect(held.local_addr().unwrap()).unwrap();
    waiting.set_read_timeout(Some(WAIT)).unwrap();
    let _second = start();
    is_served(&waiting);
}

#[test]
fn a_server_that_accepts_no_connection_is_given_up_in_time() {
    // Waiting connections fill the socket's whole backlog.
    let full = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    rustix::net::bind(&full, &SocketAddr::from((HERE, 0))).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let full = TcpListener::from(full);
    let at = full.local_addr().unwrap();
    let _waiting = TcpStream::connect(at).unwrap();
    let (done, waits) = mpsc::channel();
    thread::spawn(move || {
        let dialer = plain(at).from_reserved_ports(Metrics::default().upstreams_unprivileged);
        done.send(dialer.connect().map(drop).map_err(|error| error.to_string()))
    });
    waits.recv_timeout(WAIT).unwrap().expect_err("it takes no more");
}
