//! The TCP connections of one service in a stack. Each has a time limit until its request is
//! complete, and another one until the guest has taken the answer.
//!
//! No socket listens. The first packet of a connection gets a socket at its destination address, if
//! the table has a free entry. If the table is full, a connection is evicted: the oldest whose
//! answer was taken, otherwise the oldest whose request is incomplete after `GRACE`, otherwise the
//! oldest other connection of this age. If no connection can be evicted, the packet is dropped, and
//! its sender tries again after a second. The packet is not refused, because a sender would then
//! give up.
//!
//! Bounds: a maximum number of connections, and a time limit for each step of a connection.

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::wire::{IpEndpoint, IpProtocol, IpVersion, Ipv4Packet, Ipv6Packet, TcpPacket};
use srd_proto::time::{Duration, Instant};

/// Time after the start of a connection in which its request should arrive, even on a busy machine.
const GRACE: Duration = Duration::from_millis(100);
const TRANSMIT_BYTES: usize = 4 << 10;

/// Limits of the connections to a service, and the hop limit of its packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Largest number of simultaneous connections.
    pub(super) connections: usize,
    /// Largest number of bytes of a request.
    pub(super) request_bytes: usize,
    /// Longest time until a request is complete.
    pub(super) request: Duration,
    /// Longest time until the answer is available and the guest has taken it.
    pub(super) answer: Duration,
    /// Hop limit of sent packets.
    pub(super) hops: u8,
}

/// The local and the remote end of a connection that a packet opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Opening {
    pub(super) local: IpEndpoint,
    remote: IpEndpoint,
}

impl Opening {
    /// Reads a packet; `None` if it opens no connection.
    pub(super) fn read(packet: &[u8]) -> Option<Self> {
        let (from, to, tcp) = match IpVersion::of_packet(packet).ok()? {
            IpVersion::Ipv4 => {
                let packet = Ipv4Packet::new_checked(packet).ok()?;
                let is_tcp = packet.next_header() == IpProtocol::Tcp;
                let ends = (packet.src_addr().into(), packet.dst_addr().into());
                is_tcp.then(|| (ends.0, ends.1, packet.payload()))?
            }
            IpVersion::Ipv6 => {
                let packet = Ipv6Packet::new_checked(packet).ok()?;
                let is_tcp = packet.next_header() == IpProtocol::Tcp;
                let ends = (packet.src_addr().into(), packet.dst_addr().into());
                is_tcp.then(|| (ends.0, ends.1, packet.payload()))?
            }
        };
        let tcp = TcpPacket::new_checked(tcp).ok()?;
        let opens = tcp.syn() && !tcp.ack() && !tcp.rst() && !tcp.fin();
        let local = IpEndpoint::new(to, tcp.dst_port());
        opens.then(|| Self { local, remote: IpEndpoint::new(from, tcp.src_port()) })
    }
}

/// Result of reading the bytes that have arrived on a connection.
#[derive(Debug)]
pub(super) enum RequestOutcome {
    /// The request is incomplete.
    NotWhole,
    /// The bytes are no request.
    Broken,
    /// The first `taken` bytes are a request whose answer comes later.
    Later { taken: usize },
    /// The first `taken` bytes are a request, and this is the answer.
    Answer { taken: usize, answer: Vec<u8>, is_last: bool },
}

#[derive(Debug)]
enum Step {
    /// The connection waits for a complete request.
    Waits,
    /// The request is complete, and waits for its answer from [`Places::deliver`].
    Asked,
    /// The answer is being sent, from byte `at` on.
    Answers { answer: Vec<u8>, at: usize, is_last: bool },
    /// The last answer is sent, and the guest has to close the connection.
    Ends,
}

#[derive(Debug)]
struct Connection {
    handle: SocketHandle,
    number: u64,
    opening: Opening,
    step: Step,
    /// Time since which the connection waits for a request.
    since: Instant,
    until: Instant,
}

/// The connections of one service.
#[derive(Debug)]
pub(super) struct Places {
    bounds: Bounds,
    all: Vec<Connection>,
    /// Sockets of connections that were removed, until their last packets are sent.
    over: Vec<SocketHandle>,
    count: u64,
}

impl Places {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, all: Vec::new(), over: Vec::new(), count: 0 }
    }

    /// Returns the earliest time at which the time limit of a connection ends.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.all.iter().map(|place| place.until).min()
    }

    /// Adds a connection, if it is not in the table yet. Returns false if its packet has to be
    /// dropped, because the table is full.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        sockets: &mut SocketSet<'static>,
        opening: Opening,
    ) -> bool {
        if self.all.iter().any(|place| place.opening == opening) {
            return true;
        }
        if self.all.len() >= self.bounds.connections && !self.evict(now, sockets) {
            return false;
        }
        let buffer = |bytes| SocketBuffer::new(vec![0; bytes]);
        let mut socket = Socket::new(buffer(self.bounds.request_bytes), buffer(TRANSMIT_BYTES));
        socket.set_hop_limit(Some(self.bounds.hops));
        if socket.listen(opening.local).is_err() {
            return false;
        }
        let handle = sockets.add(socket);
        self.count += 1;
        let (step, until) = (Step::Waits, now + self.bounds.request);
        self.all.push(Connection { handle, number: self.count, opening, step, since: now, until });
        true
    }

    /// Evicts a connection to make space for another connection. Returns false if no connection may
    /// be evicted.
    fn evict(&mut self, now: Instant, sockets: &mut SocketSet<'static>) -> bool {
        let rank = |place: &Connection| {
            let is_old = now.since(place.since) >= GRACE;
            let is_taken = sockets.get::<Socket<'_>>(place.handle).send_queue() == 0;
            let rank = match place.step {
                Step::Ends if is_taken => Some(0),
                Step::Waits if is_old => Some(1),
                _ if is_old => Some(2),
                _ => None,
            };
            rank.map(|rank| (rank, place.since))
        };
        let ranked = self.all.iter().enumerate().filter_map(|(at, place)| Some((rank(place)?, at)));
        let Some((_, at)) = ranked.min() else { return false };
        let place = self.all.swap_remove(at);
        if !matches!(place.step, Step::Ends) {
            sockets.get_mut::<Socket<'_>>(place.handle).abort();
        }
        self.over.push(place.handle);
        true
    }

    /// Frees the sockets of ended connections, after their last packets were sent.
    pub(super) fn sweep(&mut self, sockets: &mut SocketSet<'static>) {
        self.all.retain(|place| {
            let state = sockets.get::<Socket<'_>>(place.handle).state();
            // A socket that still listens got no packet that opens its connection. A connection in
            // `TimeWait` was closed by both ends.
            let is_over = [State::Closed, State::Listen, State::TimeWait].contains(&state);
            if is_over {
                self.over.push(place.handle);
            }
            !is_over
        });
        for handle in self.over.drain(..) {
            sockets.remove(handle);
        }
    }

    /// Delivers the answer to a request. Returns whether its connection still exists.
    pub(super) fn deliver(&mut self, number: u64, answer: Vec<u8>) -> bool {
        let mut asked = self.all.iter_mut().filter(|place| matches!(place.step, Step::Asked));
        let place = asked.find(|place| place.number == number);
        let is_there = place.is_some();
        if let Some(place) = place {
            place.step = Step::Answers { answer, at: 0, is_last: false };
        }
        is_there
    }

    /// Continues each connection. `talk` gets a connection's number, the bytes that have arrived,
    /// and whether the guest sends no more bytes. Returns whether any connection has made progress.
    pub(super) fn speak(
        &mut self,
        now: Instant,
        sockets: &mut SocketSet<'static>,
        mut talk: impl FnMut(u64, &[u8], bool) -> RequestOutcome,
    ) -> bool {
        let mut worked = false;
        for place in &mut self.all {
            let socket = sockets.get_mut::<Socket<'_>>(place.handle);
            if socket.is_open() && place.until <= now {
                socket.abort();
                worked = true;
            } else if socket.is_open() {
                worked |= place.go_on(now, self.bounds, socket, &mut talk);
            }
        }
        worked
    }
}

impl Connection {
    fn go_on(
        &mut self,
        now: Instant,
        bounds: Bounds,
        socket: &mut Socket<'_>,
        talk: &mut impl FnMut(u64, &[u8], bool) -> RequestOutcome,
    ) -> bool {
        match &mut self.step {
            Step::Waits => self.read(now, bounds, socket, talk),
            Step::Answers { answer, at, is_last } => {
                let sent = socket.send_slice(&answer[*at..]).unwrap_or(0);
                *at += sent;
                if *at < answer.len() {
                    return sent > 0;
                }
                if *is_last {
                    socket.close();
                    self.step = Step::Ends;
                } else {
                    (self.since, self.until) = (now, now + bounds.request);
                    self.step = Step::Waits;
                }
                true
            }
            Step::Asked | Step::Ends => false,
        }
    }

    fn read(
        &mut self,
        now: Instant,
        bounds: Bounds,
        socket: &mut Socket<'_>,
        talk: &mut impl FnMut(u64, &[u8], bool) -> RequestOutcome,
    ) -> bool {
        let is_over = socket.state() == State::CloseWait;
        if !socket.may_send() || socket.recv_queue() == 0 && !is_over {
            return false;
        }
        let mut bytes = vec![0; bounds.request_bytes];
        let length = socket.peek_slice(&mut bytes).unwrap_or(0);
        let (taken, step) = match talk(self.number, &bytes[..length], is_over) {
            RequestOutcome::NotWhole if !is_over => return false,
            // The guest has closed its side, and its request is incomplete.
            RequestOutcome::NotWhole => {
                socket.close();
                (length, Step::Ends)
            }
            RequestOutcome::Broken => {
                socket.abort();
                return true;
            }
            RequestOutcome::Later { taken } => (taken, Step::Asked),
            RequestOutcome::Answer { taken, answer, is_last } => {
                (taken, Step::Answers { answer, at: 0, is_last })
            }
        };
        let _ = socket.recv(|bytes| (taken.min(bytes.len()), ()));
        (self.step, self.until) = (step, now + bounds.answer);
        true
    }
}
