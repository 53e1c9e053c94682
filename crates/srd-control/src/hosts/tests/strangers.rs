//! Connections that have not been admitted.

use super::*;

#[test]
fn strangers_beyond_the_bound_wait_until_others_have_gone() {
    let server = Server::new("10.77.0.0/16");
    let clients = serve::STRANGERS_MAX / serve::STRANGERS_OF_CLIENT_MAX;
    let idle: Vec<TcpStream> = (0..clients)
        .flat_map(|client| connect_from(10 + client, serve::STRANGERS_OF_CLIENT_MAX, server.at))
        .collect();
    let own = Identity::draw().unwrap();
    let short = Duration::from_millis(300);
    let waits = Client::open(server.at, &own, &[server.fingerprint()], short);
    let kind = waits.map(|_| ()).unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{kind}");
    drop(idle);
    server.enrol("a", 1);
    wait_until("the count", || server.hub.counters.strangers() >= 128);
}

/// Opens connections from the address 127.0.0.`last`.
fn connect_from(last: usize, count: usize, at: SocketAddr) -> Vec<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let from = SocketAddr::from(([127, 0, 0, u8::try_from(last).unwrap()], 0));
    let connect = |_| {
        runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(from).unwrap();
            let stream = socket.connect(at).await.unwrap().into_std().unwrap();
            stream.set_nonblocking(false).unwrap();
            stream
        })
    };
    (0..count).map(connect).collect()
}

/// One client with silent connections kept all hosts from the controller.
#[test]
fn regression_a_client_with_many_connections_does_not_keep_hosts_out() {
    let server = Server::new("10.77.0.0/16");
    let idle = connect_from(9, serve::STRANGERS_MAX + 32, server.at);
    server.enrol("a", 1);
    drop(idle);
}

/// Any bytes after the handshake end in a refusal or in the end of the connection, and the listener
/// serves the next host.
#[test]
fn hostile_bytes_do_no_harm() {
    let server = Server::new("10.77.0.0/16");
    let texts: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\0",
        b"\0\0\0\x04null",
        b"\0\0\0\x0f{\"kind\":\"ping\"}",
        b"\0\0\0\x10{\"kind\":\"hosts\"}",
        b"\0\0\0\x20{\"kind\":\"applied\",\"generation\":-1}",
        b"\0\0\0\x05\xff\xfe\xfd\xfc\xfb",
    ];
    for text in texts {
        let mut client = server.connect(&Identity::draw().unwrap());
        client.stream.write_all(text).unwrap();
        client.stream.conn.send_close_notify();
        let _ = client.stream.flush();
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
    }
    // A stranger without TLS.
    let mut plain = TcpStream::connect(server.at).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest);
    server.enrol("a", 1);
    assert_eq!(server.listing().hosts.len(), 1);
}
