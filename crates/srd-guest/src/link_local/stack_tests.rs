//! Tests of a stack, with the stack of a guest at the other end. Time is simulated.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Arc;

use smoltcp::socket::tcp;
use smoltcp::wire::IpEndpoint;
use srd_proto::Secret;
use srd_proto::rng::Rng;
use srd_vpc::id::InstanceId;

use super::super::nameserver::Nameserver;
use super::*;

const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const METADATA_AT: IpAddress = IpAddress::v4(169, 254, 169, 254);
const RESOLVER_AT: IpAddress = IpAddress::v4(169, 254, 169, 253);
const SECOND: Duration = Duration::from_secs(1);

fn facts() -> ServiceData {
    let metadata = [("mac".to_owned(), "02:00".to_owned())].into();
    let names = Arc::new(BTreeMap::from([("i-01".to_owned(), vec![RESOLVER.into()])]));
    let instance = InstanceId(1);
    ServiceData { instance, resolver: RESOLVER, dns_support: true, metadata, names }
}

/// A guest's stack, and the stack of the services.
struct Setting {
    now: Instant,
    stack: Stack,
    facts: ServiceData,
    tokens: Tokens,
    upstream: Option<Upstream>,
    interface: Interface,
    queues: Queues,
    sockets: SocketSet<'static>,
    port: u16,
}

impl Setting {
    fn new() -> Self {
        let mut queues = Queues::default();
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut queues, StackInstant::ZERO);
        interface.update_ip_addrs(|all| {
            all.push(IpCidr::new(IpAddress::v4(10, 0, 1, 10), 0)).unwrap();
            all.push(IpCidr::new(IpAddress::v6(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 0)).unwrap();
        });
        Self {
            now: Instant::ZERO,
            stack: Stack::new(RESOLVER, Instant::ZERO, 7),
            facts: facts(),
            tokens: Tokens::new([1; 32]),
            upstream: None,
            interface,
            queues,
            sockets: SocketSet::new(Vec::new()),
            port: 40_000,
        }
    }

    /// Creates the two stacks, and a resolver for names outside the cloud.
    fn with_upstream() -> (Self, UdpSocket, tempfile::TempDir) {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        std::fs::write(&file, "nameserver 127.0.0.1\n").unwrap();
        let nameserver = Nameserver::new(&file, server.local_addr().unwrap().port());
        let mut setting = Self::new();
        setting.upstream = Some(Upstream::new(nameserver, Secret::known(7)).unwrap());
        (setting, server, directory)
    }

    fn serve(&mut self, packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let (facts, tokens, upstream) = (&self.facts, &self.tokens, self.upstream.as_mut());
        let mut around = Environment { now: self.now, port: PortId(0), facts, tokens, upstream };
        self.stack.serve(packets, &mut around)
    }

    /// Passes packets between the two stacks until neither sends any more.
    fn exchange(&mut self) {
        loop {
            self.interface.poll(stack_time(self.now), &mut self.queues, &mut self.sockets);
            let sent = std::mem::take(&mut self.queues.out);
            let is_quiet = sent.is_empty();
            let said = self.serve(sent);
            if is_quiet && said.is_empty() {
                return;
            }
            self.queues.into.extend(said);
        }
    }

    /// Lets enough time pass for delayed acknowledgements.
    fn settle(&mut self) {
        self.pass(Duration::from_millis(20));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.exchange();
    }

    /// Opens a connection, and does not wait for it.
    fn open(&mut self, to: IpAddress, port: u16) -> SocketHandle {
        let buffer = |bytes| tcp::SocketBuffer::new(vec![0; bytes]);
        let mut socket = tcp::Socket::new(buffer(70_000), buffer(4096));
        self.port += 1;
        let remote = IpEndpoint::new(to, port);
        socket.connect(self.interface.context(), remote, self.port).unwrap();
        self.sockets.add(socket)
    }

    fn connect(&mut self, to: IpAddress, port: u16) -> SocketHandle {
        let handle = self.open(to, port);
        self.exchange();
        handle
    }

    fn socket(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    fn is_established(&mut self, handle: SocketHandle) -> bool {
        self.socket(handle).state() == tcp::State::Established
    }

    fn is_refused(&mut self, handle: SocketHandle) -> bool {
        self.socket(handle).state() == tcp::State::Closed
    }

    fn send(&mut self, handle: SocketHandle, bytes: &[u8]) {
        let sent = self.socket(handle).send_slice(bytes).unwrap();
        assert_eq!(sent, bytes.len());
        self.exchange();
    }

    /// Returns the bytes that have arrived.
    fn said(&mut self, handle: SocketHandle) -> Vec<u8> {
        let socket = self.socket(handle);
        let taken = socket.recv(|bytes| (bytes.len(), bytes.to_vec()));
        self.exchange();
        taken.unwrap_or_default()
    }

    /// Returns the answer to a datagram.
    fn ask(&mut self, to: IpAddress, port: u16, bytes: &[u8]) -> Option<Vec<u8>> {
        let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 4], vec![0; 4096]);
        let mut socket = udp::Socket::new(buffer(), buffer());
        self.port += 1;
        socket.bind(self.port).unwrap();
        socket.send_slice(bytes, IpEndpoint::new(to, port)).unwrap();
        let handle = self.sockets.add(socket);
        self.exchange();
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(handle);
        let answer = socket.recv().ok().map(|(answer, from)| (answer.to_vec(), from.endpoint));
        answer.map(|(answer, from)| {
            assert_eq!(from, IpEndpoint::new(to, port));
            answer
        })
    }

    /// Returns the answer to a request of instance metadata.
    fn http(&mut self, request: &str) -> String {
        let handle = self.connect(METADATA_AT, HTTP);
        self.send(handle, request.as_bytes());
        let said = self.said(handle);
        self.socket(handle).close();
        self.exchange();
        String::from_utf8(said).unwrap()
    }
}

/// Returns a query for the IPv4 address of a name.
fn query(name: &str) -> Vec<u8> {
    let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, 1, 0, 1]);
    bytes
}

/// Regression: each service answered at each address, even in a cloud without DNS. (V12)
#[test]
fn regression_a_service_is_at_its_own_addresses_only() {
    let v6 = |last| IpAddress::v6(0xfd00, 0xec2, 0, 0, 0, 0, 0, last);
    let addresses = [
        (IpAddress::Ipv4(RESOLVER), DNS),
        (RESOLVER_AT, DNS),
        (v6(0x253), DNS),
        (METADATA_AT, HTTP),
        (v6(0x254), HTTP),
        (IpAddress::v4(169, 254, 169, 123), NTP),
        (v6(0x123), NTP),
    ];
    let mut request = [0; 48];
    request[0] = 4 << 3 | 3;
    for dns_support in [true, false] {
        for (address, service) in addresses {
            let mut setting = Setting::new();
            setting.facts.dns_support = dns_support;
            let case = format!("{address} of {service}, names {dns_support}");
            let is_named = service == DNS && dns_support;
            let handle = setting.connect(address, HTTP);
            assert_eq!(setting.is_established(handle), service == HTTP, "{case}");
            assert_eq!(setting.is_refused(handle), service != HTTP, "{case}");
            let handle = setting.connect(address, DNS);
            assert_eq!(setting.is_established(handle), is_named, "{case}");
            let name = setting.ask(address, DNS, &query("i-01.ec2.internal"));
            assert_eq!(name.is_some(), is_named, "{case}");
            assert_eq!(setting.ask(address, NTP, &request).is_some(), service == NTP, "{case}");
            let handle = setting.connect(address, 81);
            assert!(setting.is_refused(handle), "{case}");
        }
    }
}

#[test]
fn answers_go_one_hop_and_no_further() {
    let mut setting = Setting::new();
    setting.open(METADATA_AT, HTTP);
    setting.interface.poll(StackInstant::ZERO, &mut setting.queues, &mut setting.sockets);
    let sent = std::mem::take(&mut setting.queues.out);
    let said = setting.serve(sent);
    assert_eq!(said.len(), 1);
    assert_eq!((said[0][8], &said[0][16..20]), (HOPS, &[10, 0, 1, 10][..]));
}

/// Regression: a client that sent one byte now and then kept its connection for hours.
#[test]
fn regression_a_request_has_to_be_whole_in_time() {
    let mut setting = Setting::new();
    let slow: Vec<_> =
        (0..METADATA.connections).map(|_| setting.connect(METADATA_AT, HTTP)).collect();
    for _ in 0..4 {
        slow.iter().for_each(|handle| setting.send(*handle, b"G"));
        setting.pass(SECOND);
    }
    assert!(slow.iter().all(|handle| setting.is_established(*handle)));
    // Other connections are admitted while all of these connections exist.
    for _ in 0..3 {
        assert!(setting.http("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 401"));
    }
    let lost = slow.iter().filter(|handle| setting.is_refused(**handle)).count();
    assert_eq!(lost, 1, "the oldest made place, and then there was one");
    setting.pass(SECOND);
    assert!(slow.iter().all(|handle| setting.is_refused(*handle)));
    assert!(setting.stack.metadata.poll_timeout().is_none(), "all places are free");
}

/// Regression: a client that sent half a request, and then ended its stream, kept its connection
/// for ten seconds.
#[test]
fn regression_a_request_that_never_becomes_whole_ends_at_once() {
    let mut setting = Setting::new();
    let handle = setting.connect(METADATA_AT, HTTP);
    setting.send(handle, b"GET /latest");
    setting.socket(handle).close();
    setting.exchange();
    assert!(setting.said(handle).starts_with(b"HTTP/1.1 400"));
    let silent = setting.connect(METADATA_AT, HTTP);
    setting.socket(silent).close();
    setting.exchange();
    setting.settle();
    assert!(setting.stack.metadata.poll_timeout().is_none(), "both places are free");
}

/// Regression: a connection beyond the limit was refused, and a refused program does not try again.
#[test]
fn regression_a_connection_without_a_place_waits() {
    let mut setting = Setting::new();
    let all: Vec<_> = (0..64).map(|_| setting.open(METADATA_AT, HTTP)).collect();
    setting.exchange();
    let waiting = 64 - METADATA.connections;
    let established = all.iter().filter(|handle| setting.is_established(**handle)).count();
    assert_eq!(established, METADATA.connections);
    assert!(all.iter().all(|handle| !setting.is_refused(*handle)));
    assert_eq!(setting.stack.refused, u64::try_from(waiting).unwrap());
    // All established connections send a request and end. The others try again.
    let mut answered = 0;
    for _ in 0..20 {
        for handle in &all {
            if setting.is_established(*handle) && setting.socket(*handle).send_queue() == 0 {
                setting.send(*handle, b"GET / HTTP/1.1\r\n\r\n");
                answered += usize::from(setting.said(*handle).starts_with(b"HTTP/1.1 401"));
                setting.socket(*handle).close();
                setting.exchange();
            }
        }
        setting.pass(Duration::from_millis(500));
    }
    assert_eq!(answered, 64);
}

/// A guest that takes its answer and does not close its connection keeps no other connection out.
#[test]
fn a_connection_that_is_answered_makes_place_at_once() {
    let mut setting = Setting::new();
    for n in 0..3 * METADATA.connections {
        let handle = setting.connect(METADATA_AT, HTTP);
        assert!(setting.is_established(handle), "{n}");
        setting.send(handle, b"GET / HTTP/1.1\r\n\r\n");
        assert!(setting.said(handle).starts_with(b"HTTP/1.1 401"), "{n}");
        setting.settle();
    }
    assert!(setting.stack.sockets.iter().count() <= METADATA.connections + 2);
    for _ in 0..12 {
        setting.pass(SECOND);
    }
    assert_eq!(setting.stack.sockets.iter().count(), 2, "names and time");
}

/// Queries without answers, and answers that the guest does not take, keep no other connection out.
#[test]
fn connections_that_wait_for_names_give_way() {
    let (mut setting, _server, _directory) = Setting::with_upstream();
    let all: Vec<_> = (0..NAMES.connections).map(|_| setting.connect(RESOLVER_AT, DNS)).collect();
    for handle in &all {
        setting.send(*handle, &framed(&query("www.example.com")));
    }
    let early = setting.connect(RESOLVER_AT, DNS);
    assert!(!setting.is_established(early), "all of them are young");
    setting.settle();
    assert!(setting.stack.names.deliver(1, vec![9; 100_000]));
    setting.pass(Duration::from_millis(100));
    for n in 0..3 {
        let handle = setting.connect(RESOLVER_AT, DNS);
        setting.send(handle, &framed(&query("i-01.ec2.internal")));
        setting.settle();
        assert!(setting.said(handle).ends_with(&RESOLVER.octets()), "{n}");
    }
    assert!(setting.is_refused(all[0]) && setting.is_established(all[5]));
    for _ in 0..13 {
        setting.pass(SECOND);
    }
    assert!(setting.stack.names.poll_timeout().is_none(), "all places are free");
}

/// Regression: a token was valid at one interface only. (V11)
#[test]
fn regression_a_token_of_one_interface_holds_at_each_of_its_instance() {
    let mut first = Setting::new();
    let put = "PUT /latest/api/token HTTP/1.1\r\nX-aws-ec2-metadata-token-ttl-seconds: 60\r\n\r\n";
    let said = first.http(put);
    let token = said.rsplit_once("\r\n").unwrap().1;
    let get =
        format!("GET /latest/meta-data/mac HTTP/1.1\r\nX-aws-ec2-metadata-token: {token}\r\n\r\n");
    assert!(first.http(&get).ends_with("\r\n02:00"));
    let mut second = Setting::new();
    assert!(second.http(&get).ends_with("\r\n02:00"), "the same instance");
    second.facts.instance = InstanceId(2);
    assert!(second.http(&get).starts_with("HTTP/1.1 401"), "another one");
    first.now += SECOND.times(61);
    assert!(first.http(&get).starts_with("HTTP/1.1 401"), "it is over");
}

/// Regression: all messages except plain queries were forwarded unchanged, under the machine's
/// address; and all records of a message were read. (V13)
#[test]
fn regression_only_plain_questions_get_out() {
    let (mut setting, server, _directory) = Setting::with_upstream();
    let change = |at: usize, value: u8| {
        let mut bytes = query("corp.example.com");
        bytes[at] = value;
        bytes
    };
    let length = query("corp.example.com").len();
    let records = [change(7, 81), b"\xc0\x0c\0\x02\0\x01\0\0\0\0\0\x02\xc0\x0c".repeat(10)];
    for (message, code) in [
        (change(2, 6 << 3), 4),
        (change(2, 5 << 3), 4),
        (change(2, 4 << 3), 4),
        (change(length - 3, 252), 5),
        (change(length - 3, 251), 5),
        (change(length - 1, 255), 5),
        (change(length - 1, 3), 5),
        (records.concat(), 1),
        ([change(11, 1), vec![0; 30]].concat(), 1),
    ] {
        let answer = setting.ask(RESOLVER_AT, DNS, &message).unwrap();
        assert_eq!(answer[3] & 15, code, "{message:?}");
    }
    let mut bytes = [0; 512];
    assert!(server.recv(&mut bytes).is_err(), "nothing of that got out");
    assert_eq!(setting.ask(RESOLVER_AT, DNS, &query("corp.example.com")), None);
    server.set_nonblocking(false).unwrap();
    let length = server.recv(&mut bytes).unwrap();
    assert!(bytes[2..length].eq_ignore_ascii_case(&query("corp.example.com")[2..]));
}

#[test]
fn without_the_internet_other_names_fail() {
    let mut setting = Setting::new();
    let answer = setting.ask(RESOLVER_AT, DNS, &query("example.com")).unwrap();
    assert_eq!(answer[..4], [0, 7, 0x81, 0x82], "RD as it was asked, and RA");
}

fn framed(message: &[u8]) -> Vec<u8> {
    with_length(message)
}

/// Regression: names were not available over TCP.
#[test]
fn regression_names_are_there_by_tcp_one_after_the_other() {
    let mut setting = Setting::new();
    let handle = setting.connect(RESOLVER_AT, DNS);
    let two = [framed(&query("i-01.ec2.internal")), framed(&query("none.ec2.internal"))].concat();
    for byte in &two {
        setting.send(handle, &[*byte]);
        setting.settle();
    }
    let said = setting.said(handle);
    let first = usize::from(u16::from_be_bytes([said[0], said[1]]));
    assert!(said[2..2 + first].ends_with(&RESOLVER.octets()));
    assert_eq!(said[2 + first + 2 + 3] & 15, 3);
    setting.send(handle, &framed(&query("i-01.ec2.internal"))[..9]);
    setting.pass(SECOND.times(4));
    assert!(setting.is_established(handle));
    setting.pass(SECOND);
    assert!(setting.is_refused(handle), "what is not whole in time ends");
    let long = setting.connect(RESOLVER_AT, DNS);
    setting.send(long, &[2, 1, 0]);
    assert!(setting.is_refused(long), "longer than a question is");
}

/// An answer of any length arrives completely.
#[test]
fn long_answers_come_whole_by_tcp() {
    let (mut setting, server, _directory) = Setting::with_upstream();
    let handle = setting.connect(RESOLVER_AT, DNS);
    setting.send(handle, &framed(&query("big.example.com")));
    let mut bytes = [0; 512];
    server.set_nonblocking(false).unwrap();
    let length = server.recv(&mut bytes).unwrap();
    assert!(bytes[2..length].eq_ignore_ascii_case(&query("big.example.com")[2..]));
    let answer = [&bytes[..length], &[9; 60_000]].concat();
    assert!(setting.stack.names.deliver(1, framed(&answer)));
    assert!(!setting.stack.names.deliver(1, Vec::new()), "one answer to one question");
    setting.exchange();
    let mut said = setting.said(handle);
    while said.len() < answer.len() + 2 {
        setting.pass(Duration::from_millis(20));
        let more = setting.said(handle);
        said.extend(more);
    }
    assert_eq!(said, framed(&answer));
}

/// Returns a packet of a guest without a transport checksum, because a guest leaves these checksums
/// to its device.
fn packet(protocol: u8, to: [u8; 4], transport: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + transport.len()).unwrap().to_be_bytes();
    let mut bytes = vec![0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    bytes.extend_from_slice(&[10, 0, 1, 10]);
    bytes.extend_from_slice(&to);
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(transport);
    bytes
}

#[test]
fn no_packet_of_a_guest_breaks_it() {
    let byte = |rng: &mut Rng| rng.next_u64().to_le_bytes()[0];
    let mut rng = Rng::new(7);
    let mut setting = Setting::new();
    for round in 0..20_000_u32 {
        setting.now += Duration::from_millis(1);
        let port = [80, 53, 123, 9][rng.below(4) as usize];
        let size = rng.below(60) as usize;
        let mut transport =
            vec![byte(&mut rng), 9, 0, port, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 255, 255];
        transport.extend((0..size).map(|_| byte(&mut rng)));
        if rng.below(2) == 0 {
            transport[13] = byte(&mut rng) & 63;
        }
        let last = [253, 254, 123, 1][rng.below(4) as usize];
        let protocol = [6, 17, 1, 0][rng.below(4) as usize];
        let mut bytes = packet(protocol, [169, 254, 169, last], &transport);
        if rng.below(3) == 0 {
            let at = rng.below(u32::try_from(bytes.len()).unwrap()) as usize;
            bytes[at] = byte(&mut rng);
        }
        bytes.truncate(bytes.len() - rng.below(8) as usize);
        setting.serve(vec![bytes]);
        let queues = &setting.stack.queues;
        assert!(queues.into.is_empty() && queues.out.is_empty(), "{round}");
        let most = METADATA.connections + NAMES.connections + 2;
        assert!(setting.stack.sockets.iter().count() <= most, "{round}");
    }
}
