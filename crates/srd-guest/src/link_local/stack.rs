//! The TCP/IP stack of one interface's services.
//!
//! Each service exists only at its own addresses, as in the rules (V12). The stack refuses a packet
//! for another service's port, as for a closed port.

use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::udp;
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Address, Ipv6Address};
use srd_card::vpc::PortId;
use srd_net::clock;
use srd_proto::time::{Duration, Instant};
use srd_vpc::judge::{self, Service};

use super::device::Queues;
use super::facts::ServiceData;
use super::metadata::{self, REQUEST_BYTES_MAX};
use super::places::{Bounds, Opening, Places, RequestOutcome};
use super::question::{self, Code, Message, QUESTION_BYTES_MAX};
use super::resolver;
use super::time;
use super::tokens::Tokens;
use super::upstream::{Asker, QuerySource, Upstream};

const HTTP: u16 = 80;
const DNS: u16 = 53;
const NTP: u16 = 123;
/// Hop limit (TTL) of answers, so that the instance cannot forward them.
const HOPS: u8 = 1;
/// Limits for connections to the instance metadata service.
const METADATA: Bounds = Bounds {
    connections: 32,
    request_bytes: REQUEST_BYTES_MAX,
    request: Duration::from_secs(5),
    answer: Duration::from_secs(5),
    hops: HOPS,
};
/// Size in bytes of the length field that precedes each DNS message in a TCP connection.
const LENGTH_BYTES: usize = 2;
/// Limits for TCP connections to the DNS resolver. The resolver of the machine may take some
/// seconds to answer.
const NAMES: Bounds = Bounds {
    connections: 16,
    request_bytes: LENGTH_BYTES + QUESTION_BYTES_MAX,
    request: Duration::from_secs(5),
    answer: Duration::from_secs(12),
    hops: HOPS,
};
/// Maximum number of datagrams that may wait in each direction of a UDP socket.
const DATAGRAMS: usize = 8;
/// Size in bytes of the buffer for datagrams in each direction of a UDP socket.
const DATAGRAM_BYTES: usize = 10 << 10;

/// Data and services that a stack needs to answer requests.
#[derive(Debug)]
pub(super) struct Environment<'a> {
    pub(super) now: Instant,
    pub(super) port: PortId,
    pub(super) facts: &'a ServiceData,
    pub(super) tokens: &'a Tokens,
    pub(super) upstream: Option<&'a mut Upstream>,
}

/// The stack of the services of one interface.
pub(super) struct Stack {
    interface: Interface,
    queues: Queues,
    sockets: SocketSet<'static>,
    metadata: Places,
    names: Places,
    dns: SocketHandle,
    ntp: SocketHandle,
    /// The address of the resolver of the interface's cloud.
    resolver: Ipv4Addr,
    /// Connections that were dropped because the table was full.
    pub(super) refused: u64,
    /// Time at which the stack has work even without a packet. Only [`Stack::serve`] computes it,
    /// because the loop reads it before each wait, and a stack has many timers.
    next: Option<Instant>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("resolver", &self.resolver).finish_non_exhaustive()
    }
}

impl Stack {
    /// Creates a stack that answers at the services' addresses. Its unpredictable numbers, such as
    /// TCP sequence numbers, depend on the seed.
    pub(super) fn new(resolver: Ipv4Addr, now: Instant, seed: u64) -> Self {
        let mut queues = Queues::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut queues, stack_time(now));
        interface.update_ip_addrs(|all| {
            let v4 = [253, 254, 123].map(|last| IpAddress::v4(169, 254, 169, last));
            let v6 = [0x253, 0x254, 0x123].map(|n| IpAddress::v6(0xfd00, 0xec2, 0, 0, 0, 0, 0, n));
            let whole =
                v4.into_iter().chain([IpAddress::Ipv4(resolver)]).map(|a| IpCidr::new(a, 32));
            for address in whole.chain(v6.map(|a| IpCidr::new(a, 128))) {
                // The library's limit of addresses is above these seven.
                let _ = all.push(address);
            }
        });
        // All other addresses belong to the guest, but the library requires a gateway for them.
        let routes = interface.routes_mut();
        let _ = routes.add_default_ipv4_route(Ipv4Address::new(169, 254, 169, 254));
        let _ =
            routes.add_default_ipv6_route(Ipv6Address::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254));
        let mut sockets = SocketSet::new(Vec::new());
        let [dns, ntp] = [DNS, NTP].map(|port| {
            let buffer = || {
                let slots = vec![udp::PacketMetadata::EMPTY; DATAGRAMS];
                udp::PacketBuffer::new(slots, vec![0; DATAGRAM_BYTES])
            };
            let mut socket = udp::Socket::new(buffer(), buffer());
            socket.set_hop_limit(Some(HOPS));
            // The socket is closed, and the port is not zero, so this cannot fail.
            let _ = socket.bind(port);
            sockets.add(socket)
        });
        let [metadata, names] = [METADATA, NAMES].map(Places::new);
        let (refused, next) = (0, None);
        Self { interface, queues, sockets, metadata, names, dns, ntp, resolver, refused, next }
    }

    /// Whether the stack has the resolver's address that these data contain.
    pub(super) fn is_for(&self, facts: &ServiceData) -> bool {
        self.resolver == facts.resolver
    }

    /// Returns the time at which [`Stack::serve`] has work even without a packet.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Processes packets of the guest and timers that are due. Returns packets for the guest.
    pub(super) fn serve(
        &mut self,
        packets: Vec<Vec<u8>>,
        around: &mut Environment<'_>,
    ) -> Vec<Vec<u8>> {
        let now = around.now;
        for packet in packets {
            if Opening::read(&packet).is_none_or(|opening| self.admit(around, opening)) {
                self.queues.into.push_back(packet);
                self.turn(around);
            } else {
                self.refused += 1;
            }
        }
        self.tell_answers(around);
        self.turn(around);
        let delay = self.interface.poll_delay(stack_time(now), &self.sockets);
        let at = delay.map(|delay| now + Duration::from_micros(delay.total_micros()));
        let times = [at, self.metadata.poll_timeout(), self.names.poll_timeout()];
        self.next = times.into_iter().flatten().min();
        std::mem::take(&mut self.queues.out)
    }

    /// Creates a socket for a new connection. Returns false if the packet that opens it has to be
    /// dropped.
    fn admit(&mut self, around: &Environment<'_>, opening: Opening) -> bool {
        let service = service_at(around.facts, Some(opening.local.addr));
        let places = match (service, opening.local.port) {
            (Some(Service::Metadata), HTTP) => &mut self.metadata,
            (Some(Service::Resolver), DNS) => &mut self.names,
            // No service listens there, and the stack refuses the connection.
            _ => return true,
        };
        places.admit(around.now, &mut self.sockets, opening)
    }

    /// Processes one packet that waits for the stack, and sends the answers.
    fn turn(&mut self, around: &mut Environment<'_>) {
        let now = stack_time(around.now);
        loop {
            self.interface.poll_ingress_single(now, &mut self.queues, &mut self.sockets);
            let worked = self.speak_http(around)
                | self.speak_dns(around)
                | self.speak_dns_by_tcp(around)
                | self.tell_time(around);
            self.interface.poll_egress(now, &mut self.queues, &mut self.sockets);
            self.metadata.sweep(&mut self.sockets);
            self.names.sweep(&mut self.sockets);
            if !worked {
                return;
            }
        }
    }

    fn speak_http(&mut self, around: &Environment<'_>) -> bool {
        let secret = || clock::seed().ok();
        self.metadata.speak(around.now, &mut self.sockets, |_, request, is_over| {
            let asked = metadata::GuestRequest { now: around.now, request, is_over };
            let said = metadata::answer(&asked, around.facts, around.tokens, secret);
            said.map_or(RequestOutcome::NotWhole, |answer| RequestOutcome::Answer {
                taken: request.len(),
                answer,
                is_last: true,
            })
        })
    }

    /// Delivers answers of the machine's resolver to the guest.
    fn tell_answers(&mut self, around: &mut Environment<'_>) {
        let answers = around.upstream.as_mut().map(|upstream| upstream.answers(around.port));
        for (back, answer) in answers.unwrap_or_default() {
            match back {
                QuerySource::Datagram(back) => {
                    let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.dns);
                    let _ = socket.send_slice(&answer, back);
                    // The socket has a short queue, so each answer is sent before the next one is
                    // queued.
                    let now = stack_time(around.now);
                    self.interface.poll_egress(now, &mut self.queues, &mut self.sockets);
                }
                QuerySource::Connection(number) => {
                    self.names.deliver(number, with_length(&answer));
                }
            }
        }
    }

    fn speak_dns(&mut self, around: &mut Environment<'_>) -> bool {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.dns);
        let mut worked = false;
        while let Ok((message, back)) = socket.recv() {
            worked = true;
            if service_at(around.facts, back.local_address) != Some(Service::Resolver) {
                continue;
            }
            let said = match question::read(message) {
                Message::Question(question) => {
                    let answer = reply(around, &question, QuerySource::Datagram(back));
                    answer.map(|answer| question.fitting(answer))
                }
                Message::Refused(answer) => Some(answer),
                Message::Nothing => None,
            };
            if let Some(said) = said {
                let _ = socket.send_slice(&said, back);
            }
        }
        worked
    }

    fn speak_dns_by_tcp(&mut self, around: &mut Environment<'_>) -> bool {
        let now = around.now;
        self.names.speak(now, &mut self.sockets, |number, bytes, _| {
            let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
                return RequestOutcome::NotWhole;
            };
            let length = usize::from(u16::from_be_bytes(*length));
            if length > QUESTION_BYTES_MAX {
                return RequestOutcome::Broken;
            }
            let Some(message) = rest.get(..length) else { return RequestOutcome::NotWhole };
            let answer = match question::read(message) {
                Message::Question(question) => {
                    reply(around, &question, QuerySource::Connection(number))
                }
                Message::Refused(answer) => Some(answer),
                Message::Nothing => return RequestOutcome::Broken,
            };
            let taken = LENGTH_BYTES + length;
            answer.map_or(RequestOutcome::Later { taken }, |answer| RequestOutcome::Answer {
                taken,
                answer: with_length(&answer),
                is_last: false,
            })
        })
    }

    fn tell_time(&mut self, around: &Environment<'_>) -> bool {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.ntp);
        let mut worked = false;
        while let Ok((request, back)) = socket.recv() {
            worked = true;
            if service_at(around.facts, back.local_address) != Some(Service::Time) {
                continue;
            }
            if let Some(said) = time::answer(request, SystemTime::now()) {
                let _ = socket.send_slice(&said, back);
            }
        }
        worked
    }
}

/// Returns the immediate answer to a query; `None` if the query was forwarded to the machine's
/// resolver.
fn reply(
    around: &mut Environment<'_>,
    question: &question::Question,
    back: QuerySource,
) -> Option<Vec<u8>> {
    if let Some(answer) = resolver::answer(question, &around.facts.names) {
        return Some(answer);
    }
    let by = Asker { instance: around.facts.instance, port: around.port, back };
    let upstream = around.upstream.as_mut();
    let is_asked = upstream.is_some_and(|upstream| upstream.ask(around.now, by, question));
    (!is_asked).then(|| question.fail(Code::ServerFailure))
}

/// Returns the service that the rules assign to an address, if there is one.
fn service_at(facts: &ServiceData, address: Option<IpAddress>) -> Option<Service> {
    let address: IpAddr = address?.into();
    judge::service(facts.resolver, facts.dns_support, address)
}

/// Returns a DNS message preceded by its length, as a TCP connection carries it.
fn with_length(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let message = &message[..usize::from(length)];
    [&length.to_be_bytes()[..], message].concat()
}

fn stack_time(now: Instant) -> StackInstant {
    StackInstant::from_micros(i64::try_from(now.as_nanos() / 1000).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[path = "stack_tests.rs"]
mod tests;
