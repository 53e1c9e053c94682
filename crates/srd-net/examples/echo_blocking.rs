//! The smallest program: a server that returns each datagram, and a client that sends one and waits
//! for its return.
//!
//! ```text
//! echo_blocking server 127.0.0.1:7471
//! echo_blocking client 127.0.0.1:7471 hello
//! ```
//! The server binds `paths` consecutive ports, starting at the given port.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use srd_net::{BindOptions, Endpoint};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["server", at] => serve(at.parse()?),
        ["client", at, word] => ask(at.parse()?, word),
        _ => Err("usage: echo_blocking server ADDR | client ADDR WORD".into()),
    }
}

fn serve(at: SocketAddr) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::bind(&BindOptions::at(at))?;
    println!("listening on {}", endpoint.local_address());
    loop {
        let datagram = endpoint.recv()?;
        datagram.peer.send(datagram.payload)?;
    }
}

fn ask(at: SocketAddr, word: &str) -> Result<(), Box<dyn Error>> {
    let mut options = BindOptions::default();
    if at.is_ipv6() {
        options.address = std::net::Ipv6Addr::UNSPECIFIED.into();
    }
    let endpoint = Endpoint::bind(&options)?;
    let server = endpoint.connect(at)?;
    server.send(Bytes::from(word.to_string()))?;
    match endpoint.recv_timeout(Duration::from_secs(6))? {
        Some(answer) => println!("{}", String::from_utf8_lossy(&answer.payload)),
        None => return Err(format!("no answer: {:?}", endpoint.take_events()).into()),
    }
    endpoint.close(Duration::from_secs(1));
    Ok(())
}
