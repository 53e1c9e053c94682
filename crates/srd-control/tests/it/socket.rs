//! Tests of the server that answers requests on a socket.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use srd_control::control::{Access, Control};
use srd_control::machines::{Machines, NoMachines, Unconfirmed};
use srd_control::server;
use srd_control::state::{Instance, Region};
use srd_control::store::MemoryStore;

use crate::support::{first, request};

fn start() -> SocketAddr {
    start_with(Box::new(NoMachines))
}

fn start_with(machines: Box<dyn Machines>) -> SocketAddr {
    let listener = server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let store = Box::new(MemoryStore::default());
    let control = Control::new(Access::AnyCredentials, 1, store, machines).unwrap();
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

/// Machines that use a change as soon as the test permits it.
struct Late {
    /// Number of requests that have waited.
    waits: Arc<AtomicUsize>,
    permit: Arc<Mutex<()>>,
}

impl Machines for Late {
    fn start(&mut self, _: &Region, _: &Instance) -> Result<(), String> {
        Ok(())
    }

    fn stop(&mut self, _: &Region, _: &Instance) {}

    fn unconfirmed(&mut self) -> Option<Unconfirmed> {
        let (waits, permit) = (Arc::clone(&self.waits), Arc::clone(&self.permit));
        Some(Unconfirmed::new(move || {
            waits.fetch_add(1, Ordering::Relaxed);
            drop(permit.lock().unwrap());
        }))
    }

    fn run_programs(&self) -> bool {
        false
    }
}

/// Clients that closed their connections before they had an answer could have any number of
/// requests in progress.
#[test]
fn regression_requests_in_progress_are_limited_also_if_their_clients_are_gone() {
    let (waits, permit) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<()>>::default());
    let held = permit.lock().unwrap();
    let machines = Late { waits: Arc::clone(&waits), permit: Arc::clone(&permit) };
    let address = start_with(Box::new(machines));
    let connect = || {
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client
    };
    let read = post("Action=DescribeVpcs&Version=2016-11-15");
    for number in 1..=server::CONNECTIONS_MAX {
        let mut client = connect();
        client.write_all(read.as_bytes()).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while waits.load(Ordering::Relaxed) < number {
            assert!(Instant::now() < end, "the request {number} does not wait");
            std::thread::sleep(Duration::from_millis(1));
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "the server ends the connection");
    }
    // The answer to these bytes needs no control plane, but a connection.
    let mut late = connect();
    late.write_all(b"GET / HTTP/9.9\r\n\r\n").unwrap();
    late.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    late.read(&mut [0]).unwrap_err();
    drop(held);
    late.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(late.read(&mut [0]).unwrap(), 1);
}

#[test]
fn addresses_of_other_machines_are_refused() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = server::listen(address.parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("loopback"), "{error}");
    }
}
