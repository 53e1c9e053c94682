//! Tests of the listener for hosts with real connections, and of decisions.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use srd_enrol::frame::{CONTROLLER_BYTES_MAX, HOST_BYTES_MAX, Inbox, encode};
use srd_enrol::message::VERSION;
use srd_enrol::{
    Fingerprint, FromController, FromHost, Host, Identity, Peer, Refusal, RefusalKind, Token, tls,
};

use super::admin::{self, Listing, Request};
use super::decide::{Enrolment, TokenOptions, USES_MAX};
use super::hub::Hub;
use super::table::Table;
use super::{TOKENS_MAX, serve};
use crate::clock::now_s;
use crate::control::{Access, Control};
use crate::fleet::Parts;
use crate::machines::NoMachines;
use crate::store::embedded::EmbeddedStore;
use crate::store::{MemoryStore, Store};

mod backup;
mod bounds;
mod journal;
mod parts;
mod pods;
mod rotation;
mod stale;
mod strangers;

/// Longest wait for one event.
const PATIENCE: Duration = Duration::from_secs(60);
/// An hour in seconds, and one use.
const ONE: TokenOptions = TokenOptions { lifetime_s: 3600, uses: 1 };

struct Server {
    hub: Arc<Hub>,
    at: SocketAddr,
    /// Lines of the log.
    lines: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(overlay: &str) -> Self {
        Self::with(overlay, Box::<MemoryStore>::default())
    }

    fn with(overlay: &str, store: Box<dyn Store>) -> Self {
        Self::with_parts(overlay, store, None)
    }

    fn with_parts(overlay: &str, store: Box<dyn Store>, parts: Option<Parts>) -> Self {
        let control = Control::new(Access::AnyCredentials, 1, store, Box::new(NoMachines));
        let mut hub = Hub::new(Arc::new(Mutex::new(control.unwrap())), parts);
        hub.permit_pods();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&lines);
        hub.log_by(Box::new(move |line: &str| kept.lock().unwrap().push(line.to_owned())));
        let hub = Arc::new(hub);
        hub.decide(|table| table.begin(None, overlay.parse().unwrap())).unwrap();
        let listener = serve::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        serve::start(listener, Arc::clone(&hub)).unwrap();
        Self { hub, at, lines }
    }

    fn fingerprint(&self) -> Fingerprint {
        self.hub.hosts().table().fingerprint().unwrap()
    }

    fn token(&self, uses: u32) -> Token {
        let options = TokenOptions { uses, ..ONE };
        self.hub.decide(|table| table.create_token(options, now_s())).unwrap()
    }

    fn connect(&self, own: &Identity) -> Client {
        Client::open(self.at, own, &[self.fingerprint()], PATIENCE).unwrap()
    }

    /// Enrols a host, and returns it with its connection.
    fn enrol(&self, name: &str, number: u8) -> (Node, Client) {
        let node = Node::new(name, number);
        let mut client = self.connect(&node.identity);
        client.send(&node.enrol(&self.token(1)));
        assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
        (node, client)
    }

    fn listing(&self) -> Listing {
        let value = admin::answer(&self.hub, Request::Hosts).unwrap();
        serde_json::from_value(value).unwrap()
    }

    fn refused(&self, kind: RefusalKind) -> u64 {
        self.hub.counters.refused(kind)
    }
}

/// A host without a transport.
struct Node {
    name: String,
    identity: Identity,
    host: Host,
}

impl Node {
    fn new(name: &str, number: u8) -> Self {
        Self { name: name.to_owned(), identity: Identity::draw().unwrap(), host: host(number) }
    }

    fn enrol(&self, token: &Token) -> FromHost {
        FromHost::Enrol {
            version: VERSION,
            token: token.id.clone(),
            secret: token.secret.clone(),
            name: self.name.clone(),
            host: self.host.clone(),
        }
    }

    fn follow(&self, generation: u64) -> FromHost {
        let host = self.host.clone();
        FromHost::Follow { version: VERSION, generation, host, identities: None }
    }

    fn request(&self, token: &Token) -> Enrolment {
        Enrolment {
            identity: self.identity.fingerprint(),
            token: token.id.clone(),
            secret: token.secret.clone(),
            name: self.name.clone(),
            host: self.host.clone(),
        }
    }
}

fn key(number: u8) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode([number; 32])
}

fn host(number: u8) -> Host {
    Host {
        public_key: key(number),
        endpoints: vec![([192, 0, 2, number], 7471).into()],
        processors: 4,
        memory_bytes: 1 << 32,
        capacity: None,
    }
}

struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    inbox: Inbox,
}

impl Client {
    fn open(
        at: SocketAddr,
        own: &Identity,
        expects: &[Fingerprint],
        wait: Duration,
    ) -> std::io::Result<Self> {
        let socket = TcpStream::connect(at)?;
        socket.set_read_timeout(Some(wait))?;
        let connection =
            ClientConnection::new(tls::of_host(own, expects).unwrap(), tls::controller_name());
        let mut stream = StreamOwned::new(connection.unwrap(), socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self { stream, inbox: Inbox::new(CONTROLLER_BYTES_MAX) })
    }

    fn send(&mut self, message: &FromHost) {
        self.stream.write_all(&encode(message, HOST_BYTES_MAX).unwrap()).unwrap();
    }

    /// Waits until the controller has taken all earlier messages.
    fn ping(&mut self) {
        self.send(&FromHost::Ping);
        assert_eq!(self.receive(), Ok(FromController::Pong));
    }

    /// Returns the next message, or the refusal.
    fn receive(&mut self) -> Result<FromController, Refusal> {
        loop {
            match self.inbox.take().unwrap() {
                Some(FromController::Refused(refusal)) => return Err(refusal),
                Some(message) => return Ok(message),
                None => {}
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the connection has ended");
            self.inbox.push(&bytes[..count]);
        }
    }

    fn snapshot(&mut self) -> (u64, Vec<Peer>) {
        match self.receive() {
            Ok(FromController::Snapshot { generation, peers }) => (generation, peers),
            other => panic!("{other:?}"),
        }
    }

    fn delta(&mut self) -> (u64, Vec<String>, Vec<String>) {
        match self.receive() {
            Ok(FromController::Delta { generation, changed, removed }) => {
                (generation, changed.into_iter().map(|peer| peer.name).collect(), removed)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_host_gets_its_peers_at_its_enrolment_and_each_change_afterwards() {
    let server = Server::new("10.77.0.0/16");
    let (_, mut first) = server.enrol("a", 1);
    let (generation, peers) = first.snapshot();
    assert!(peers.is_empty());
    let (second, mut client) = server.enrol("b", 2);
    let (_, peers) = client.snapshot();
    let seen: Vec<(&str, String)> =
        peers.iter().map(|peer| (peer.name.as_str(), peer.address.to_string())).collect();
    assert_eq!(seen, [("a", "10.77.0.1".to_owned())]);
    let (after, changed, removed) = first.delta();
    assert_eq!((after, changed, removed.len()), (generation + 1, vec!["b".to_owned()], 0));
    // A host that moves is changed at the others. It gets no message about itself.
    client.ping();
    drop(client);
    let mut moved = second.host.clone();
    moved.endpoints = vec!["192.0.2.99:7471".parse().unwrap()];
    let mut client = server.connect(&second.identity);
    let moved = Node { host: moved, ..second };
    client.send(&moved.follow(after));
    let Ok(FromController::Welcome { name, address }) = client.receive() else { panic!() };
    assert_eq!((name.as_str(), address.to_string()), ("b", "10.77.0.2/16".to_owned()));
    assert_eq!(first.delta().1, ["b"]);
    let (present, changed, _) = client.delta();
    assert!(changed.is_empty());
    client.send(&FromHost::Applied { generation: present });
    client.ping();
    let listing = server.listing();
    assert_eq!(listing.generation, present);
    assert_eq!((listing.hosts[1].applied, listing.hosts[1].connected), (Some(present), true));
    // A host without changes gets no message before the answer to its ping.
    let (third, mut client) = server.enrol("c", 3);
    let (generation, _) = client.snapshot();
    client.ping();
    let mut third_again = server.connect(&third.identity);
    third_again.send(&third.follow(generation));
    assert!(matches!(third_again.receive(), Ok(FromController::Welcome { .. })));
    third_again.ping();
}

#[test]
fn a_host_that_is_removed_is_refused_and_the_others_are_notified() {
    let server = Server::new("10.77.0.0/16");
    let (_, mut a) = server.enrol("a", 1);
    let (b, mut b_client) = server.enrol("b", 2);
    a.snapshot();
    assert_eq!(a.delta().1, ["b"]);
    b_client.snapshot();
    server.hub.decide(|table| table.remove("b")).unwrap();
    let (_, changed, removed) = a.delta();
    assert_eq!((changed.len(), removed), (0, vec!["b".to_owned()]));
    let refusal = b_client.receive().unwrap_err();
    assert_eq!(refusal.reason, RefusalKind::HostUnknown);
    // Its credential is useless from now on.
    let mut client = server.connect(&b.identity);
    client.send(&b.follow(0));
    assert_eq!(client.receive().unwrap_err().reason, RefusalKind::HostUnknown);
    wait_until("the count", || server.refused(RefusalKind::HostUnknown) == 2);
    // The name is free, and the address is not assigned again at once.
    let (_, _client) = server.enrol("b", 3);
    assert_eq!(server.listing().hosts[1].address, "10.77.0.3/16");
    assert_eq!(server.hub.decide(|t| t.remove("x")).unwrap_err().reason, RefusalKind::HostUnknown);
}

/// Each of these hosts gets an error, is counted, and changes nothing.
#[test]
fn hosts_without_a_right_are_refused_and_cost_no_state() {
    let server = Server::new("10.77.0.0/16");
    let (a, mut a_client) = server.enrol("a", 1);
    a_client.snapshot();
    let token = server.token(1);
    let records = || server.hub.hosts().records();
    let before = records();
    let refused = |own: &Identity, message: &FromHost, kind: RefusalKind| {
        let count = server.refused(kind);
        let mut client = server.connect(own);
        client.send(message);
        let refusal = client.receive().unwrap_err();
        assert_eq!(refusal.reason, kind, "{refusal}");
        assert!(!refusal.message.contains(&token.secret.0), "{refusal}");
        wait_until("the count", || server.refused(kind) == count + 1);
        assert_eq!(records(), before);
    };
    let stranger = Node::new("stranger", 9);
    let unknown = Token::draw(server.fingerprint()).unwrap();
    let guess = Token { secret: unknown.secret.clone(), ..token.clone() };
    refused(&stranger.identity, &stranger.enrol(&unknown), RefusalKind::TokenUnknown);
    refused(&stranger.identity, &stranger.enrol(&guess), RefusalKind::TokenUnknown);
    refused(&stranger.identity, &stranger.follow(0), RefusalKind::HostUnknown);
    refused(&stranger.identity, &FromHost::Ping, RefusalKind::Invalid);
    // A host with a token that claims the name, the key or the address of another host.
    let name = Node { name: "a".to_owned(), ..Node::new("", 9) };
    refused(&name.identity, &name.enrol(&token), RefusalKind::NameTaken);
    let key = Node { host: Host { public_key: key(1), ..host(9) }, ..Node::new("k", 9) };
    refused(&key.identity, &key.enrol(&token), RefusalKind::KeyTaken);
    let endpoints = a.host.endpoints.clone();
    let endpoint = Node { host: Host { endpoints, ..host(9) }, ..Node::new("e", 9) };
    refused(&endpoint.identity, &endpoint.enrol(&token), RefusalKind::EndpointTaken);
    let bad = Node { name: "a b".to_owned(), ..Node::new("", 9) };
    refused(&bad.identity, &bad.enrol(&token), RefusalKind::Invalid);
    let other_version =
        FromHost::Follow { version: 2, generation: 0, host: host(1), identities: None };
    refused(&a.identity, &other_version, RefusalKind::Version);
    // A host that has enrolled cannot take another name, and cannot change its key alone.
    let renamed = Node { name: "z".to_owned(), identity: a.identity.clone(), host: host(1) };
    refused(&a.identity, &renamed.enrol(&token), RefusalKind::NameTaken);
    let rekeyed = Node { name: "a".to_owned(), identity: a.identity.clone(), host: host(8) };
    refused(&a.identity, &rekeyed.follow(0), RefusalKind::OtherKey);
}

#[test]
fn a_token_expires_is_used_up_and_can_be_revoked() {
    let server = Server::new("10.77.0.0/16");
    let token = server.token(2);
    let [a, b, c] = [("a", 1), ("b", 2), ("c", 3)].map(|(name, number)| Node::new(name, number));
    let enrol =
        |node: &Node, now| server.hub.decide(|table| table.enrol(&node.request(&token), now));
    let reason = |node, now| enrol(node, now).unwrap_err().reason;
    assert_eq!(reason(&a, now_s() + 3601), RefusalKind::TokenExpired);
    enrol(&a, now_s()).unwrap();
    // The answer was lost: the same host may repeat its request, and uses the token once.
    enrol(&a, now_s()).unwrap();
    enrol(&b, now_s()).unwrap();
    assert_eq!(reason(&c, now_s()), RefusalKind::TokenUsed);
    server.hub.decide(|table| table.revoke_token(&token.id)).unwrap();
    assert_eq!(reason(&c, now_s()), RefusalKind::TokenUnknown);
    server.hub.decide(|table| table.revoke_token(&token.id)).unwrap_err();
    let table = server.hub.hosts().table();
    for options in [
        TokenOptions { lifetime_s: 0, ..ONE },
        TokenOptions { lifetime_s: u64::MAX, ..ONE },
        TokenOptions { uses: 0, ..ONE },
        TokenOptions { uses: USES_MAX + 1, ..ONE },
    ] {
        assert_eq!(table.create_token(options, 1).unwrap_err().reason, RefusalKind::Invalid);
    }
}

#[test]
fn the_store_contains_no_secret_of_a_token() {
    let server = Server::new("10.77.0.0/16");
    let token = server.token(1);
    let records = server.hub.hosts().records();
    assert!(records.iter().any(|(key, _)| key.contains(&token.id)));
    assert!(!records.iter().any(|(_, value)| value.contains(&token.secret.0)));
    let shown = format!("{:?}", *server.hub.hosts().table());
    assert!(!shown.contains(&token.secret.0));
    let own = records.iter().find(|(key, _)| key == "hosts/identity").unwrap();
    let own = own.1.split('"').nth(3).unwrap();
    assert!(own.len() > 40 && !shown.contains(own));
}

#[test]
fn tables_have_bounds() {
    let server = Server::new("10.77.0.0/30");
    for _ in 0..TOKENS_MAX {
        server.token(1);
    }
    let create = |now| server.hub.decide(|table| table.create_token(ONE, now));
    assert_eq!(create(now_s()).unwrap_err().reason, RefusalKind::Full);
    // Expired tokens make way.
    let later = now_s() + 3601;
    let options = TokenOptions { uses: 3, ..ONE };
    let token = server.hub.decide(|table| table.create_token(options, later)).unwrap();
    let [a, b, c] = [("a", 1), ("b", 2), ("c", 3)].map(|(name, number)| Node::new(name, number));
    let enrol =
        |node: &Node| server.hub.decide(|table| table.enrol(&node.request(&token), now_s()));
    enrol(&a).unwrap();
    enrol(&b).unwrap();
    let refusal = enrol(&c).unwrap_err();
    assert_eq!(refusal.reason, RefusalKind::Full);
    assert!(refusal.message.contains("no free address"));
}

#[test]
fn a_message_that_is_too_long_ends_the_connection() {
    let server = Server::new("10.77.0.0/16");
    let mut client = server.connect(&Identity::draw().unwrap());
    client.stream.write_all(&u32::MAX.to_be_bytes()).unwrap();
    assert_eq!(client.receive().unwrap_err().reason, RefusalKind::Invalid);
    let mut client = server.connect(&Identity::draw().unwrap());
    client.stream.write_all(b"\0\0\0\x02{}").unwrap();
    assert_eq!(client.receive().unwrap_err().reason, RefusalKind::Invalid);
}

#[test]
fn a_host_that_connects_twice_keeps_the_newer_connection() {
    let server = Server::new("10.77.0.0/16");
    let (a, mut first) = server.enrol("a", 1);
    let (generation, _) = first.snapshot();
    first.ping();
    let mut second = server.connect(&a.identity);
    second.send(&a.follow(generation));
    assert!(matches!(second.receive(), Ok(FromController::Welcome { .. })));
    assert_eq!(first.receive().unwrap_err().reason, RefusalKind::Superseded);
    second.ping();
    wait_until("the count", || server.refused(RefusalKind::Superseded) == 1);
    assert!(server.listing().hosts[0].connected);
    drop(second);
    wait_until("the end", || !server.listing().hosts[0].connected);
}

#[test]
fn a_host_changes_its_key_at_its_next_start() {
    let server = Server::new("10.77.0.0/16");
    let (a, mut client) = server.enrol("a", 1);
    let (_, mut other) = server.enrol("b", 2);
    let (generation, _) = client.snapshot();
    other.snapshot();
    assert_eq!(client.delta().1, ["b"]);
    server.hub.decide(|table| table.rotate("a")).unwrap();
    assert_eq!(client.receive(), Ok(FromController::Rotate));
    assert_eq!(server.listing().hosts[0].rotation.as_deref(), Some("requested"));
    client.send(&FromHost::NextKey { public_key: key(2) });
    assert_eq!(client.receive().unwrap_err().reason, RefusalKind::KeyTaken);
    let mut client = server.connect(&a.identity);
    client.send(&a.follow(generation + 1));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    assert_eq!(client.receive(), Ok(FromController::Rotate));
    client.send(&FromHost::NextKey { public_key: key(7) });
    assert_eq!(client.receive(), Ok(FromController::KeyStored { public_key: key(7) }));
    assert_eq!(server.listing().hosts[0].rotation.as_deref(), Some("not in use yet"));
    // No other host can take the next key.
    let thief = Node { host: Host { public_key: key(7), ..host(9) }, ..Node::new("t", 9) };
    let token = server.token(1);
    let enrol = server.hub.decide(|table| table.enrol(&thief.request(&token), now_s()));
    assert_eq!(enrol.unwrap_err().reason, RefusalKind::KeyTaken);
    let mut client = server.connect(&a.identity);
    let host = Host { public_key: key(7), ..a.host.clone() };
    client.send(&Node { host, ..a }.follow(generation + 1));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    assert_eq!(other.delta().1, ["a"]);
    let entry = &server.listing().hosts[0];
    assert_eq!((entry.public_key.as_str(), entry.rotation.as_deref()), (key(7).as_str(), None));
}

#[test]
fn hosts_survive_a_restart_of_the_controller_and_a_reset() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Box::new(EmbeddedStore::open(&directory.path().join("state.db")).unwrap());
    let mut control =
        Control::new(Access::AnyCredentials, 1, open(), Box::new(NoMachines)).unwrap();
    control.decide(|table| table.begin(None, "10.77.0.0/16".parse().unwrap())).unwrap();
    let a = Node::new("a", 1);
    let token = control.decide(|table| table.create_token(ONE, now_s())).unwrap();
    control.decide(|table| table.enrol(&a.request(&token), now_s())).unwrap();
    let records = control.hosts().records();
    drop(control);
    let mut control =
        Control::new(Access::AnyCredentials, 1, open(), Box::new(NoMachines)).unwrap();
    assert_eq!(control.hosts().records(), records);
    control.follow().unwrap();
    assert_eq!(control.hosts().records(), records);
    let reset = crate::http::HttpRequest {
        method: "POST".to_owned(),
        path: "/reset".to_owned(),
        query: String::new(),
        headers: vec![("host".to_owned(), "127.0.0.1".to_owned())],
        body: Vec::new(),
    };
    assert_eq!(control.handle(&reset, now_s()).status, 200);
    assert_eq!(control.hosts().records(), records);
    drop(control);
    let server = Server::with("10.77.0.0/16", open());
    assert_eq!(server.hub.hosts().records(), records);
    let mut client = server.connect(&a.identity);
    client.send(&a.follow(0));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    // The block cannot change any more.
    let other = Some("10.99.0.0/16".parse().unwrap());
    let refusal = server.hub.decide(|t| t.begin(other, "10.77.0.0/16".parse().unwrap()));
    assert_eq!(refusal.unwrap_err().reason, RefusalKind::Invalid);
}

/// Applies the changes of a decision to a table.
fn decide<T>(hosts: &super::Hosts, decision: super::decide::Decision<T>) -> T {
    let (changes, result) = decision.unwrap();
    for (key, value) in changes {
        hosts.read(&key, value.as_deref()).unwrap();
    }
    result
}

#[test]
fn a_generation_whose_removals_are_forgotten_leads_to_a_snapshot() {
    let hosts = super::Hosts::default();
    let with = |f: &dyn Fn(&Table) -> super::decide::Decision<()>| {
        let decision = f(&hosts.table());
        decide(&hosts, decision);
    };
    with(&|table| table.begin(None, "10.0.0.0/8".parse().unwrap()));
    let token = hosts.table().create_token(TokenOptions { uses: USES_MAX, ..ONE }, 1);
    let token = decide(&hosts, token);
    let cycle = || {
        with(&|table| table.enrol(&Node::new("x", 1).request(&token), 1).map(|(c, _)| (c, ())));
        with(&|table| table.remove("x"));
    };
    let is_delta = |generation| {
        let (_, message) = hosts.table().since(generation, "other").unwrap();
        match message {
            FromController::Delta { changed, removed, .. } => {
                assert_eq!((changed.len(), removed), (0, vec!["x".to_owned()]));
                true
            }
            FromController::Snapshot { .. } => false,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(hosts.table().since(1, "other"), None);
    cycle();
    assert!(is_delta(1) && is_delta(2) && !is_delta(0) && !is_delta(9));
    assert_eq!(hosts.table().since(3, "other"), None);
    for _ in 1..1024 {
        cycle();
    }
    assert!(is_delta(1), "all removals are remembered");
    let other = hosts.table().create_token(ONE, 1);
    let other = decide(&hosts, other);
    with(&|table| table.enrol(&Node::new("x", 1).request(&other), 1).map(|(c, _)| (c, ())));
    with(&|table| table.remove("x"));
    assert!(!is_delta(1) && is_delta(3));
}

#[test]
fn a_change_reaches_many_hosts() {
    const COUNT: u8 = 60;
    let server = Server::new("10.77.0.0/16");
    let begin = std::time::Instant::now();
    let mut all: Vec<(Node, Client)> =
        (1..=COUNT).map(|number| server.enrol(&format!("h{number}"), number)).collect();
    println!("{COUNT} hosts have enrolled after {:?}", begin.elapsed());
    // Several changes may arrive as one message.
    let generation = server.hub.hosts().table().generation();
    let until = |client: &mut Client, generation: u64| loop {
        match client.receive().unwrap() {
            FromController::Snapshot { generation: at, .. }
            | FromController::Delta { generation: at, .. }
                if at == generation =>
            {
                return;
            }
            _ => {}
        }
    };
    all.iter_mut().for_each(|(_, client)| until(client, generation));
    let (_, mut removed) = all.remove(0);
    let begin = std::time::Instant::now();
    server.hub.decide(|table| table.remove("h1")).unwrap();
    for (_, client) in &mut all {
        let (at, changed, removed) = client.delta();
        assert_eq!((at, changed.len(), removed), (generation + 1, 0, vec!["h1".to_owned()]));
    }
    println!("a removal has reached {} hosts after {:?}", all.len(), begin.elapsed());
    assert_eq!(removed.receive().unwrap_err().reason, RefusalKind::HostUnknown);
}
