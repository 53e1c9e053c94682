//! The TCP/IP stack of one interface's services.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::SystemTime;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::{Duration as StackDuration, Instant as StackInstant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Address, Ipv6Address};
use srd_card::vpc::PortId;
use srd_net::clock;
use srd_proto::time::{Duration, Instant};

use super::facts::Facts;
use super::metadata::{self, REQUEST_BYTES_MAX, Tokens};
use super::resolver::{self, Answer};
use super::time;
use super::upstream::Upstream;

const HTTP: u16 = 80;
const DNS: u16 = 53;
const NTP: u16 = 123;
/// Connections at once, and the longest silence of one.
const CONNECTIONS: usize = 32;
const SILENCE_MAX: StackDuration = StackDuration::from_secs(10);
const TRANSMIT_BYTES: usize = 4 << 10;
/// Datagrams, and their bytes, that wait in either direction.
const DATAGRAMS: usize = 32;
const DATAGRAM_BYTES: usize = 16 << 10;
/// Bytes of the largest packet that is sent.
const MTU: usize = 1500;
/// Answers do not leave the instance.
const HOPS: u8 = 1;

/// Packets in and out.
#[derive(Debug, Default)]
struct Queues {
    into: VecDeque<Vec<u8>>,
    out: Vec<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sent<'a>(&'a mut Vec<Vec<u8>>);

impl smoltcp::phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl smoltcp::phy::TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut packet = vec![0; length];
        let result = write(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: StackInstant) -> Option<(Received, Sent<'_>)> {
        let packet = self.into.pop_front()?;
        Some((Received(packet), Sent(&mut self.out)))
    }

    fn transmit(&mut self, _: StackInstant) -> Option<Sent<'_>> {
        Some(Sent(&mut self.out))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut checksum = ChecksumCapabilities::default();
        // A guest leaves those of TCP and UDP to its device, which nothing between can damage.
        (checksum.tcp, checksum.udp) = (Checksum::Tx, Checksum::Tx);
        let mut all = DeviceCapabilities::default();
        all.medium = Medium::Ip;
        all.max_transmission_unit = MTU;
        all.checksum = checksum;
        all
    }
}

/// The stack of one interface.
pub(super) struct Stack {
    interface: Interface,
    queues: Queues,
    sockets: SocketSet<'static>,
    http: Vec<SocketHandle>,
    dns: SocketHandle,
    ntp: SocketHandle,
    tokens: Tokens,
    /// When there is something to do without a packet. Only [`Stack::serve`] changes it: the loop
    /// asks before each wait, and a stack has many timers.
    next: Option<Instant>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Stack {
    /// A stack that answers at the services' addresses.
    pub(super) fn new(resolver: Ipv4Addr, now: Instant) -> Self {
        let mut queues = Queues::default();
        let mut config = Config::new(HardwareAddress::Ip);
        let seed = clock::seed().unwrap_or_default();
        config.random_seed = u64::from_le_bytes(std::array::from_fn(|at| seed[at]));
        let mut interface = Interface::new(config, &mut queues, stack_time(now));
        interface.update_ip_addrs(|all| {
            let v4 = [253, 254, 123].map(|last| IpAddress::v4(169, 254, 169, last));
            let v6 = [0x253, 0x254, 0x123].map(|n| IpAddress::v6(0xfd00, 0xec2, 0, 0, 0, 0, 0, n));
            let whole =
                v4.into_iter().chain([IpAddress::Ipv4(resolver)]).map(|a| IpCidr::new(a, 32));
            for address in whole.chain(v6.map(|a| IpCidr::new(a, 128))) {
                // The limit of the library's feature is above these seven.
                let _ = all.push(address);
            }
        });
        // Everything else is the guest; a gateway is a formality of the library.
        let routes = interface.routes_mut();
        let _ = routes.add_default_ipv4_route(Ipv4Address::new(169, 254, 169, 254));
        let _ =
            routes.add_default_ipv6_route(Ipv6Address::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254));
        let mut sockets = SocketSet::new(Vec::new());
        let http = (0..CONNECTIONS).map(|_| {
            let buffer = |bytes| tcp::SocketBuffer::new(vec![0; bytes]);
            let mut socket = tcp::Socket::new(buffer(REQUEST_BYTES_MAX), buffer(TRANSMIT_BYTES));
            socket.set_timeout(Some(SILENCE_MAX));
            socket.set_hop_limit(Some(HOPS));
            sockets.add(socket)
        });
        let http = http.collect();
        let [dns, ntp] = [DNS, NTP].map(|port| {
            let buffer = || {
                let slots = vec![udp::PacketMetadata::EMPTY; DATAGRAMS];
                udp::PacketBuffer::new(slots, vec![0; DATAGRAM_BYTES])
            };
            let mut socket = udp::Socket::new(buffer(), buffer());
            socket.set_hop_limit(Some(HOPS));
            // The socket is closed, and the port is not zero: it cannot fail.
            let _ = socket.bind(port);
            sockets.add(socket)
        });
        Self { interface, queues, sockets, http, dns, ntp, tokens: Tokens::default(), next: None }
    }

    /// When [`Stack::serve`] has something to do without a packet.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Takes packets, and returns those for the guest.
    pub(super) fn serve(
        &mut self,
        now: Instant,
        port: PortId,
        packets: Vec<Vec<u8>>,
        facts: &Facts,
        mut upstream: Option<&mut Upstream>,
    ) -> Vec<Vec<u8>> {
        self.queues.into.extend(packets);
        // Each round takes what has come, and sends what was said of it.
        loop {
            self.listen();
            self.interface.poll(stack_time(now), &mut self.queues, &mut self.sockets);
            let worked = self.speak_http(now, facts)
                | self.speak_dns(now, port, facts, upstream.as_deref_mut())
                | self.tell_time();
            if !worked {
                let delay = self.interface.poll_delay(stack_time(now), &self.sockets);
                self.next = delay.map(|delay| now + Duration::from_micros(delay.total_micros()));
                return std::mem::take(&mut self.queues.out);
            }
        }
    }

    fn listen(&mut self) {
        for handle in &self.http {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(*handle);
            // What it has closed in order cannot come back: its place is for the next one.
            if socket.state() == tcp::State::TimeWait {
                socket.abort();
            }
            if !socket.is_open() {
                let _ = socket.listen(HTTP);
            }
        }
    }

    fn speak_http(&mut self, now: Instant, facts: &Facts) -> bool {
        let mut worked = false;
        for handle in &self.http {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(*handle);
            if socket.may_send() && socket.recv_queue() > 0 {
                let mut request = vec![0; REQUEST_BYTES_MAX];
                let length = socket.peek_slice(&mut request).unwrap_or(0);
                let secret = || clock::seed().ok();
                let request = &request[..length];
                let said =
                    metadata::answer(now, request, &facts.metadata, &mut self.tokens, secret);
                if let Some(said) = said {
                    let _ = socket.recv(|bytes| (bytes.len(), ()));
                    let sent = socket.send_slice(&said);
                    if sent == Ok(said.len()) {
                        socket.close();
                    } else {
                        socket.abort();
                    }
                    worked = true;
                }
            } else if socket.may_send() && !socket.may_recv() && socket.recv_queue() == 0 {
                // The guest has said all, and it was no request.
                socket.close();
                worked = true;
            }
        }
        worked
    }

    fn speak_dns(
        &mut self,
        now: Instant,
        port: PortId,
        facts: &Facts,
        mut upstream: Option<&mut Upstream>,
    ) -> bool {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.dns);
        let mut worked = false;
        for (back, answer) in upstream.iter_mut().flat_map(|upstream| upstream.answers(port)) {
            worked |= socket.send_slice(&answer, back).is_ok();
        }
        while let Ok((query, back)) = socket.recv() {
            let query = query.to_vec();
            let said = match resolver::answer(&query, &facts.names) {
                Answer::Here(answer) => Some(answer),
                Answer::Nothing => None,
                Answer::Elsewhere => {
                    let asked = upstream.as_mut().is_some_and(|u| u.ask(now, port, back, &query));
                    if asked { None } else { resolver::refuse(&query) }
                }
            };
            if let Some(said) = said {
                let _ = socket.send_slice(&said, back);
            }
            worked = true;
        }
        worked
    }

    fn tell_time(&mut self) -> bool {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.ntp);
        let mut worked = false;
        while let Ok((request, back)) = socket.recv() {
            if let Some(said) = time::answer(request, SystemTime::now()) {
                let _ = socket.send_slice(&said, back);
            }
            worked = true;
        }
        worked
    }
}

fn stack_time(now: Instant) -> StackInstant {
    StackInstant::from_micros(i64::try_from(now.as_nanos() / 1000).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail loudly
    use super::*;
    use srd_proto::rng::Rng;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn facts() -> Facts {
        let metadata = [("mac".to_owned(), "02:00".to_owned())].into();
        let names = Arc::new(BTreeMap::new());
        Facts { resolver: Ipv4Addr::new(10, 0, 0, 2), metadata, names }
    }

    /// A packet of a guest, without checksums of its transport, as a guest's device leaves them.
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

    fn open(port: u16) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        let tcp = [high, low, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 255, 255, 0, 0, 0, 0];
        packet(6, [169, 254, 169, 254], &tcp)
    }

    #[test]
    fn answers_go_one_hop_and_no_further() {
        let mut stack = Stack::new(facts().resolver, Instant::ZERO);
        let said = stack.serve(Instant::ZERO, PortId(0), vec![open(4000)], &facts(), None);
        assert_eq!(said.len(), 1);
        assert_eq!((said[0][8], &said[0][16..20]), (HOPS, &[10, 0, 1, 10][..]));
    }

    #[test]
    fn connections_that_say_nothing_give_their_places_back() {
        let mut stack = Stack::new(facts().resolver, Instant::ZERO);
        let syns = |first: u16| (0..40).map(|n| open(first + n)).collect::<Vec<_>>();
        let is_accepted = |said: &Vec<u8>| said[20 + 13] == 0x12;
        let said = stack.serve(Instant::ZERO, PortId(0), syns(4000), &facts(), None);
        assert_eq!(said.iter().filter(|said| is_accepted(said)).count(), CONNECTIONS);
        let mut now = Instant::ZERO;
        for _ in 0..40 {
            now += Duration::from_millis(500);
            stack.serve(now, PortId(0), Vec::new(), &facts(), None);
        }
        let said = stack.serve(now, PortId(0), syns(5000), &facts(), None);
        assert_eq!(said.iter().filter(|said| is_accepted(said)).count(), CONNECTIONS);
    }

    #[test]
    fn no_packet_of_a_guest_breaks_it() {
        let byte = |rng: &mut Rng| rng.next_u64().to_le_bytes()[0];
        let mut rng = Rng::new(7);
        let mut stack = Stack::new(facts().resolver, Instant::ZERO);
        let mut now = Instant::ZERO;
        for round in 0..20_000_u32 {
            now += Duration::from_millis(1);
            let port = [80, 53, 123, 9][rng.below(4) as usize];
            let size = rng.below(60) as usize;
            let mut transport = vec![0, 9, 0, port, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 255, 255];
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
            stack.serve(now, PortId(0), vec![bytes], &facts(), None);
            assert!(stack.queues.into.is_empty() && stack.queues.out.is_empty(), "{round}");
        }
    }
}
