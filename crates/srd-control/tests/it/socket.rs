//! Tests of the server that answers requests on a socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use srd_control::control::{Access, Control};
use srd_control::machines::NoMachines;
use srd_control::server;
use srd_control::store::MemoryStore;

use crate::support::{first, request};

fn start() -> SocketAddr {
    let listener = server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let store = Box::new(MemoryStore::default());
    let control = Control::new(Access::AnyCredentials, 1, store, Box::new(NoMachines)).unwrap();
    std::thread::spawn(move || server::serve(listener, control));
    address
}

/// Sends bytes, and returns the text that the server sends until it closes the connection.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the bytes of a request with this form.
fn post(form: &str) -> String {
    let request = request("us-east-1", form);
    let mut head = "POST / HTTP/1.1\r\nconnection: close\r\n".to_owned();
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{head}content-length: {}\r\n\r\n{form}", form.len())
}

/// The SDKs of Go, Java and JavaScript read the identifier of a request in the header.
#[test]
fn the_identifier_of_a_request_is_in_the_body_and_in_a_header() {
    let address = start();
    for (form, element) in [
        ("Action=DescribeVpcs&Version=2016-11-15", "requestId"),
        ("Action=DescribeVpcs&VpcId.1=vpc-0&Version=2016-11-15", "RequestID"),
    ] {
        let answer = exchange(address, post(form).as_bytes());
        let header = format!("\r\nx-amzn-requestid: {}\r\n", first(&answer, element));
        assert!(answer.contains(&header), "{answer}");
    }
}

#[test]
fn a_client_gets_its_answer_and_a_body_that_is_too_large_a_refusal() {
    let address = start();
    let answer = exchange(address, post("Action=DescribeVpcs&Version=2016-11-15").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("<DescribeVpcsResponse xmlns="));
    let large = post(&"a".repeat(server::BODY_BYTES_MAX + 1));
    let answer = exchange(address, large.as_bytes());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    for hostile in ["GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\0\0\0\0\r\n\r\n"] {
        let answer = exchange(address, hostile.as_bytes());
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let get = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert!(exchange(address, get.as_bytes()).contains("MissingAuthenticationToken"));
}

#[test]
fn addresses_of_other_machines_are_refused() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = server::listen(address.parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("loopback"), "{error}");
    }
}
