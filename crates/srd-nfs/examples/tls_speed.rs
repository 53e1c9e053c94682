//! Cost of the two halves of the proxy: writes of 1 MiB, 16 at a time, over one TLS connection of
//! rustls alone, and over both halves with the same cipher, all on loopback in one process.
//!
//! The connection of rustls passes each byte through TCP once, and the halves pass it three times,
//! so on a machine with few processors the halves cannot reach the same rate. `cpu` is the
//! processor time per byte of each way.
//!
//! `cargo run --release -p srd-nfs --example tls_speed [SECONDS]`

#![allow(clippy::unwrap_used, reason = "a measuring program may fail loudly")]

#[path = "../tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use rustls::{ClientConnection, ServerConnection, StreamOwned};
use srd_nfs::dial::{Dialer, Target, TlsFiles};
use srd_nfs::limits::Limits;
use srd_nfs::link::Pacing;
use srd_nfs::metrics::Metrics;
use srd_nfs::record;
use srd_nfs::serve::{self, Certificates};
use srd_nfs::tls::{self, Identity};
use srd_nfs::{accept::Acceptor, client};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use support::{Authority, call};

const RECORD_BYTES: usize = 1 << 20;
const DEPTH: usize = 16;
/// Bytes of the call's transaction number in a record of one fragment.
const XID: std::ops::Range<usize> = 4..8;
const NAME: &str = "nas.example";
const RECORD_MAX: usize = 4 << 20;

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Answers each call with the head of a reply.
fn answer(stream: impl Read + Write) {
    let mut stream = BufReader::with_capacity(256 << 10, stream);
    while let Ok(Some(call)) = record::read(&mut stream, RECORD_MAX) {
        let mut reply = [&call.message()[..4], &[0, 0, 0, 1], &[0; 16]].concat();
        reply.truncate(24);
        let reply = record::Record::of(&reply).unwrap();
        if stream.get_mut().write_all(reply.bytes()).is_err() {
            return;
        }
        let _ = stream.get_mut().flush();
    }
}

/// Writes for `time`, and returns the bytes per second that were acknowledged.
fn write(mut stream: impl Read + Write, time: Duration) -> f64 {
    let mut data = call(0, RECORD_BYTES).bytes().to_vec();
    let (began, mut sent, mut answered) = (Instant::now(), 0_usize, 0_usize);
    while began.elapsed() < time || answered < sent {
        if began.elapsed() < time && sent - answered < DEPTH {
            sent += 1;
            // Each call needs a new number: a call with the number of an unanswered call counts as
            // a repetition of it.
            data[XID].copy_from_slice(&u32::try_from(sent).unwrap().to_be_bytes());
            stream.write_all(&data).unwrap();
        } else {
            record::read(&mut stream, RECORD_MAX).unwrap().expect("a reply");
            answered += 1;
        }
    }
    answered as f64 * data.len() as f64 / began.elapsed().as_secs_f64()
}

/// Measures rustls alone: one connection, one thread at each end. Returns bytes per second.
fn library(authority: &Authority, own: &Identity, time: Duration) -> f64 {
    let (listener, address) = listen();
    let config = tls::server(own, None, None).unwrap();
    let server = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        socket.set_nodelay(true).unwrap();
        answer(StreamOwned::new(ServerConnection::new(config).unwrap(), socket));
    });
    let ca = authority.file();
    let config = tls::client(tls::Issuers { ca: &ca, crl: None }, None, None).unwrap();
    let connection = ClientConnection::new(config, NAME.try_into().unwrap()).unwrap();
    let rate = write(StreamOwned::new(connection, connect(address)), time);
    server.join().unwrap();
    rate
}

/// Measures TCP without TLS and without halves. Returns bytes per second.
fn bare(time: Duration) -> f64 {
    let (listener, address) = listen();
    let server = thread::spawn(move || answer(listener.accept().unwrap().0));
    let rate = write(connect(address), time);
    server.join().unwrap();
    rate
}

/// Measures both halves with `connections` connections between them. Returns bytes per second.
fn halves(authority: &Authority, own: &Identity, connections: usize, time: Duration) -> f64 {
    let (listener, address) = listen();
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(socket));
        }
    });
    let target = |at: SocketAddr| Target { host: at.ip().to_string(), port: at.port() };
    let files = serve::TlsFiles { own: own.clone(), ..Default::default() };
    let certificates = Arc::new(Certificates::read(files, Pacing::default()).unwrap());
    let to = Arc::new(Dialer::new(target(address), None, Pacing::default()).unwrap());
    let how = serve::Options::default();
    let far = serve::start(listen().0, to, Some(certificates), how, &Metrics::default()).unwrap();
    let files =
        TlsFiles { ca: authority.file(), server_name: Some(NAME.into()), ..Default::default() };
    let far_at = target(far.address().unwrap());
    let dialer = Arc::new(Dialer::new(far_at, Some(files), Pacing::default()).unwrap());
    let options = client::Options {
        limits: Limits::default(),
        connections_max: connections,
        pacing: Pacing::default(),
        any_user: true,
    };
    let near: Acceptor = client::start(listen().0, dialer, &options, &Metrics::default()).unwrap();
    let rate = write(connect(near.address().unwrap()), time);
    near.end(Duration::from_secs(5));
    far.end(Duration::from_secs(5));
    rate
}

/// Returns the seconds of processor time that this process has used.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(3.0, |text| text.parse().expect("seconds"));
    let time = Duration::from_secs_f64(seconds);
    let authority = Authority::new();
    let own = authority.identity(NAME, 30);
    println!("{:<28}{:>10}{:>16}", "", "MB/s", "cpu, ns/B");
    for _ in 0..3 {
        let show = |what: &str, run: &dyn Fn() -> f64| {
            let (began, before) = (Instant::now(), cpu());
            let rate = run();
            let cost = (cpu() - before) * 1e9 / (rate * began.elapsed().as_secs_f64());
            println!("{what:<28}{:>10.0}{cost:>16.2}", rate / 1e6);
        };
        show("TCP", &|| bare(time));
        show("TLS, the library alone", &|| library(&authority, &own, time));
        show("halves, 1 connection", &|| halves(&authority, &own, 1, time));
        show("halves, 5 connections", &|| halves(&authority, &own, 5, time));
    }
}
