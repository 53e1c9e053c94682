//! Tests of the server with TLS.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use srd_control::control::{Access, Control};
use srd_control::machines::NoMachines;
use srd_control::server::{self, Https, Limits};
use srd_control::store::MemoryStore;
use srd_control::tls::{Authority, Certificates, Source};

use crate::support::{SharedStore, request};

/// Longest wait for a state that is awaited.
const PATIENCE: Duration = Duration::from_secs(60);

fn control(store: SharedStore) -> Control {
    Control::new(Access::AnyCredentials, 1, Box::new(store), Box::new(NoMachines)).unwrap()
}

fn start(source: Source, names: &[&str], limits: Limits) -> SocketAddr {
    let listener = server::listen_https("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let certificates = Arc::new(Certificates::new(source, names).unwrap());
    let (report, publish) = (Box::new(|_: &str| ()), Box::new(|_: &str| Ok(())));
    let https = Https { certificates, report, publish, limits };
    let store = Box::new(MemoryStore::default());
    let control = Control::new(Access::AnyCredentials, 1, store, Box::new(NoMachines)).unwrap();
    std::thread::spawn(move || {
        server::serve_shared(listener, Arc::new(Mutex::new(control)), Some(https))
    });
    address
}

/// Connects to the server by a name, and trusts this certificate only. The handshake ends with the
/// first write.
fn connect(
    address: SocketAddr,
    name: &str,
    trusted: &str,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(client, stream)
}

/// Sends a request with this header `Host`, and returns the answer.
fn exchange(stream: &mut (impl Read + Write), host: &str) -> std::io::Result<String> {
    let form = "Action=DescribeVpcs&Version=2016-11-15";
    let mut head = format!("POST / HTTP/1.1\r\nconnection: close\r\nhost: {host}\r\n");
    for (name, value) in request("us-east-1", form).headers.iter().filter(|(n, _)| n != "host") {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    write!(stream, "{head}content-length: {}\r\n\r\n{form}", form.len())?;
    stream.flush()?;
    let mut answer = Vec::new();
    // The server may close the connection without the end of TLS.
    let _ = stream.read_to_end(&mut answer);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Waits until the server has closed the connection.
fn wait_for_end(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

#[test]
fn https_is_served_under_the_names_of_the_certificate() {
    let authority = Authority::draw().unwrap();
    let names = ["ec2.example", "127.0.0.1"];
    let address = start(Source::Authority(authority.clone()), &names, Limits::default());
    let send = |name: &str, host: &str| {
        exchange(&mut connect(address, name, authority.certificate()), host)
    };
    for (name, host) in [
        ("ec2.example", "ec2.example"),
        ("ec2.example", "EC2.example:443"),
        ("127.0.0.1", "127.0.0.1:4599"),
        ("127.0.0.1", "localhost"),
    ] {
        let answer = send(name, host).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{host}: {answer}");
        assert!(answer.contains("</DescribeVpcsResponse>"), "{host}: {answer}");
    }
    for host in ["evil.example", "10.0.0.1", ""] {
        let answer = send("ec2.example", host).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
    }
    // A client that expects another name, and one that trusts another authority.
    assert!(send("evil.example", "ec2.example").is_err());
    let other = Authority::draw().unwrap();
    let stranger = exchange(&mut connect(address, names[0], other.certificate()), names[0]);
    assert!(stranger.is_err());
    // Plain HTTP gets no answer of HTTP. The server may close the connection before all is written.
    let answer = exchange(&mut TcpStream::connect(address).unwrap(), "localhost");
    assert!(!answer.as_ref().is_ok_and(|answer| answer.contains("HTTP/1.1")), "{answer:?}");
}

#[test]
fn a_client_that_does_not_shake_hands_loses_its_connection() {
    let authority = Authority::draw().unwrap();
    let limits = Limits { handshake_wait_max: Duration::from_millis(200), ..Limits::default() };
    let address = start(Source::Authority(authority.clone()), &["localhost"], limits);
    let mut silent = TcpStream::connect(address).unwrap();
    let mut slow = TcpStream::connect(address).unwrap();
    // The begin of a record that never ends.
    slow.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    assert!(wait_for_end(&mut silent).is_empty());
    wait_for_end(&mut slow);
    // The limit is one of the handshake, not of the connection. A thread of a busy machine may not
    // run for so long, so the client tries again.
    let began = Instant::now();
    let mut client = loop {
        let mut client = connect(address, "localhost", authority.certificate());
        if client.conn.complete_io(&mut client.sock).is_ok() {
            break client;
        }
        assert!(began.elapsed() < PATIENCE, "no handshake is in time");
    };
    std::thread::sleep(Duration::from_millis(400));
    let answer = exchange(&mut client, "localhost").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[test]
fn a_client_has_a_limited_number_of_connections() {
    let authority = Authority::draw().unwrap();
    let limits = Limits { client_connections_max: 3, ..Limits::default() };
    let address = start(Source::Authority(authority.clone()), &["localhost"], limits);
    let connected = || {
        let mut client = connect(address, "localhost", authority.certificate());
        client.conn.complete_io(&mut client.sock).map(|_| client)
    };
    let mut first: Vec<_> = (0..3).map(|_| connected().unwrap()).collect();
    assert!(connected().is_err());
    drop(first.pop());
    let began = Instant::now();
    while connected().is_err() {
        assert!(began.elapsed() < PATIENCE, "the place of a closed connection stays occupied");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Writes the files of a certificate, and returns the certificate.
fn write(directory: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["ec2.example".to_owned()]).unwrap();
    let texts = [("key.pem", made.key_pair.serialize_pem()), ("cert.pem", made.cert.pem())];
    for (name, text) in texts {
        let new = directory.join("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&new, directory.join(name)).unwrap();
    }
    made.cert.pem()
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = write(directory.path());
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    let files = Source::Files { certificate, key };
    let address = start(files, &["ec2.example"], Limits::default());
    let mut old = connect(address, "ec2.example", &first);
    old.conn.complete_io(&mut old.sock).unwrap();
    let second = write(directory.path());
    let began = Instant::now();
    let answer = loop {
        if let Ok(answer) = exchange(&mut connect(address, "ec2.example", &second), "ec2.example") {
            break answer;
        }
        assert!(began.elapsed() < PATIENCE, "the certificate is not read again");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    // Connections go on with the certificate with which they began.
    assert!(exchange(&mut old, "ec2.example").unwrap().starts_with("HTTP/1.1 200 OK"));
    assert!(exchange(&mut connect(address, "ec2.example", &first), "ec2.example").is_err());
}

#[test]
fn the_authority_is_a_part_of_the_state_and_of_all_its_controllers() {
    let store = SharedStore::default();
    let (mut one, mut two) = (control(store.clone()), control(store.clone()));
    let authority = one.authority().unwrap();
    assert_eq!(two.authority().unwrap(), authority);
    assert_eq!(one.authority().unwrap(), authority);
    assert_eq!(control(store).authority().unwrap(), authority);
}

/// A certificate that could not be written, because the disk was full, stayed unwritten until the
/// next start of the server.
#[test]
fn regression_the_certificate_of_the_authority_is_published_after_failures() {
    const FAILURES: usize = 2;
    let mut own = control(SharedStore::default());
    let former = own.authority().unwrap();
    let listener = server::listen_https("127.0.0.1:0".parse().unwrap()).unwrap();
    let source = Source::Authority(former);
    let certificates = Arc::new(Certificates::new(source, vec!["localhost".to_owned()]).unwrap());
    let (sender, published) = std::sync::mpsc::channel();
    let mut failures = 0;
    let publish = Box::new(move |pem: &str| {
        if failures < FAILURES {
            failures += 1;
            return Err("the disk is full".to_owned());
        }
        sender.send(pem.to_owned()).map_err(|error| error.to_string())
    });
    let (reporter, reports) = std::sync::mpsc::channel();
    let report = Box::new(move |what: &str| drop(reporter.send(what.to_owned())));
    let https = Https { certificates, report, publish, limits: Limits::default() };
    let own = Arc::new(Mutex::new(own));
    let serves = Arc::clone(&own);
    std::thread::spawn(move || server::serve_shared(listener, serves, Some(https)));
    own.lock().unwrap().rotate_authority().unwrap();
    let next = own.lock().unwrap().present_authority().unwrap().certificate().to_owned();
    assert_eq!(published.recv_timeout(PATIENCE).unwrap(), next);
    // A failure that lasts is reported once.
    let reported = || reports.recv_timeout(PATIENCE).unwrap();
    assert!(reported().contains("another authority"));
    assert_eq!(reported(), "the disk is full; the server tries again");
    assert!(reported().contains("is published now"));
    assert!(published.recv_timeout(server::RELOAD_PERIOD * 2).is_err(), "it is published once");
}

/// The authority stayed as long as the state.
#[test]
fn regression_the_authority_is_replaced_without_a_restart() {
    let store = SharedStore::default();
    let (mut own, mut other) = (control(store.clone()), control(store));
    assert!(own.rotate_authority().unwrap_err().contains("no server of this state"));
    let former = own.authority().unwrap();
    let listener = server::listen_https("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let source = Source::Authority(former.clone());
    let certificates = Arc::new(Certificates::new(source, vec!["localhost".to_owned()]).unwrap());
    let (sender, published) = std::sync::mpsc::channel();
    let publish = Box::new(move |pem: &str| sender.send(pem.to_owned()).map_err(|e| e.to_string()));
    let report = Box::new(|_: &str| ());
    let https = Https { certificates, report, publish, limits: Limits::default() };
    let own = Arc::new(Mutex::new(own));
    let serves = Arc::clone(&own);
    std::thread::spawn(move || server::serve_shared(listener, serves, Some(https)));
    let mut old = connect(address, "localhost", former.certificate());
    old.conn.complete_io(&mut old.sock).unwrap();
    own.lock().unwrap().rotate_authority().unwrap();
    other.follow().unwrap();
    let next = other.present_authority().unwrap().certificate().to_owned();
    assert_ne!(next, former.certificate());
    assert_eq!(published.recv_timeout(PATIENCE).unwrap(), next);
    let send = |trusted: &str| exchange(&mut connect(address, "localhost", trusted), "localhost");
    assert!(send(&next).unwrap().starts_with("HTTP/1.1 200 OK"));
    assert!(send(former.certificate()).is_err());
    // Connections go on with the certificate with which they began.
    assert!(exchange(&mut old, "localhost").unwrap().starts_with("HTTP/1.1 200 OK"));
}
