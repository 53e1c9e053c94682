//! Queries for names outside the cloud, which the machine's own resolver answers.
//!
//! A query is sent in a datagram. If a guest has sent it by TCP and the answer does not fit into a
//! datagram, the query is repeated by TCP. An answer counts only if it comes from that resolver, to
//! the port of its query, with the query's id, and repeats the name with the cases of letters that
//! were drawn for it (RFC 5452). An attacker that cannot see the query has to guess all of these.
//! If only the cases differ, the resolver may be one that changes them. Then the query is repeated
//! by TCP, where no other host can answer.
//!
//! Bounds: [`ASKED_MAX`] queries are under way, each for a few seconds and with its own socket. If
//! the table is full, the oldest query of the instance with most queries is dropped, whatever
//! number of interfaces the instance has. So an instance with many queries harms only itself. One
//! turn of the loop reads [`RECEIVED_MAX`] messages, and [`ANSWERS_MAX`] answers may wait for an
//! interface.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::event::{Timespec, epoll};
use smoltcp::socket::udp::UdpMetadata;
use srd_card::vpc::PortId;
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::id::InstanceId;

use super::by_tcp::ByTcp;
use super::nameserver::{Nameserver, receive};
use super::numbers::Numbers;
use super::question::{Answers, Code, DATAGRAM_BYTES_MAX, Question, is_truncated};

/// Maximum number of queries under way.
const ASKED_MAX: usize = 1024;
/// Longest wait for an answer of the machine's resolver.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of messages that are read in one turn of the loop.
const RECEIVED_MAX: usize = 256;
/// Maximum number of answers that wait for the stack of an interface. Usually the stack takes them
/// in the same turn of the loop.
const ANSWERS_MAX: usize = 2 * ASKED_MAX;
/// File that names the resolvers of a machine.
const FILE: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Source of a query in the stack of an interface, to which the answer is returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum QuerySource {
    Datagram(UdpMetadata),
    /// A TCP connection, by its number in [`super::places`].
    Connection(u64),
}

/// The instance and the interface that have sent a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) instance: InstanceId,
    pub(super) port: PortId,
    pub(super) back: QuerySource,
}

/// A query of a guest, with its sender.
#[derive(Debug)]
struct GuestQuery {
    by: Asker,
    question: Question,
}

/// A query that was sent in a datagram, and waits for its answer.
#[derive(Debug)]
struct Waits {
    asked: GuestQuery,
    /// The socket of this query, at a port that the kernel has drawn.
    socket: UdpSocket,
    id: [u8; 2],
    /// Name, type and class, with the cases of letters that were drawn.
    section: Vec<u8>,
    until: Instant,
}

/// The queries of all instances to the machine's resolver.
#[derive(Debug)]
pub(super) struct Upstream {
    nameserver: Nameserver,
    by_tcp: ByTcp,
    /// Queries under way, by their sequence numbers.
    waits: BTreeMap<u64, Waits>,
    next: u64,
    /// The epoll instance of all sockets.
    epoll: Arc<OwnedFd>,
    /// Sequence numbers of each instance's queries, the oldest first.
    of_instances: BTreeMap<InstanceId, VecDeque<u64>>,
    asked_by_tcp: BTreeMap<u64, GuestQuery>,
    answers: BTreeMap<PortId, Vec<(QuerySource, Vec<u8>)>>,
    numbers: Numbers,
    /// Number of messages that have answered no query.
    wrong: u64,
}

impl Upstream {
    /// Creates the table of queries, for the resolver that `/etc/resolv.conf` names.
    pub(super) fn of_machine(secret: Secret) -> io::Result<Self> {
        Self::new(Nameserver::new(Path::new(FILE), PORT), secret)
    }

    pub(super) fn new(nameserver: Nameserver, secret: Secret) -> io::Result<Self> {
        Ok(Self {
            nameserver,
            by_tcp: ByTcp::new()?,
            waits: BTreeMap::new(),
            next: 0,
            epoll: Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?),
            of_instances: BTreeMap::new(),
            asked_by_tcp: BTreeMap::new(),
            answers: BTreeMap::new(),
            numbers: Numbers::new(secret),
            wrong: 0,
        })
    }

    /// Returns the descriptors that are readable when a message of the resolver has arrived.
    pub(super) fn fds(&self) -> Vec<Arc<OwnedFd>> {
        vec![Arc::clone(&self.epoll), self.by_tcp.fd()]
    }

    /// Sends a query to the machine's resolver. Returns false if the resolver cannot be reached.
    pub(super) fn ask(&mut self, now: Instant, by: Asker, question: &Question) -> bool {
        if self.nameserver.follow(now) {
            // The previous server's answers are not accepted any more.
            self.waits.clear();
            self.of_instances.clear();
        }
        self.make_place(now);
        let [a, b, ..] = self.numbers.next().to_be_bytes();
        let (id, section) = ([a, b], question.mixed(|| self.numbers.next()));
        let query = question.of_ours(id, &section);
        let Some(socket) = self.nameserver.ask(now, &query) else { return false };
        let data = epoll::EventData::new_u64(self.next);
        if epoll::add(&self.epoll, socket.as_fd(), data, epoll::EventFlags::IN).is_err() {
            return false;
        }
        let place = self.next;
        self.next += 1;
        self.of_instances.entry(by.instance).or_default().push_back(place);
        let asked = GuestQuery { by, question: question.clone() };
        self.waits.insert(place, Waits { asked, socket, id, section, until: now + PATIENCE });
        true
    }

    /// Removes queries that have waited too long, and makes space for one more.
    fn make_place(&mut self, now: Instant) {
        while let Some((place, _)) = self.waits.first_key_value().filter(|(_, of)| of.until <= now)
        {
            let place = *place;
            self.take(place);
        }
        if self.waits.len() < ASKED_MAX {
            return;
        }
        let most = self.of_instances.values().max_by_key(|places| places.len());
        let oldest = most.and_then(|places| places.front().copied());
        if let Some(waits) = oldest.and_then(|place| self.take(place)) {
            self.fail(&waits.asked);
        }
    }

    /// Removes a query that is no longer under way.
    fn take(&mut self, place: u64) -> Option<Waits> {
        let waits = self.waits.remove(&place)?;
        let instance = waits.asked.by.instance;
        if let Some(places) = self.of_instances.get_mut(&instance) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                self.of_instances.remove(&instance);
            }
        }
        Some(waits)
    }

    fn say(&mut self, asked: &GuestQuery, answer: Vec<u8>) {
        let answer = match asked.by.back {
            QuerySource::Datagram(_) => asked.question.fitting(answer),
            QuerySource::Connection(_) => answer,
        };
        let answers = self.answers.entry(asked.by.port).or_default();
        // If the answer is dropped here, the guest repeats its query.
        if answers.len() < ANSWERS_MAX {
            answers.push((asked.by.back, answer));
        }
    }

    fn fail(&mut self, asked: &GuestQuery) {
        self.say(asked, asked.question.fail(Code::ServerFailure));
    }

    /// Receives messages of the machine's resolver. Returns the interfaces for which answers wait.
    pub(super) fn receive(&mut self, now: Instant) -> Vec<PortId> {
        let mut events = [const { MaybeUninit::uninit() }; RECEIVED_MAX];
        let waited = epoll::wait(&self.epoll, &mut events[..], Some(&NO_TIME));
        let ready = waited.map_or(&[][..], |(events, _)| events);
        for event in ready {
            // One message of each socket is read. If there are more, the kernel reports the socket
            // again.
            self.receive_at(now, event.data.u64());
        }
        for (number, answer) in self.by_tcp.receive() {
            let Some(asked) = self.asked_by_tcp.remove(&number) else { continue };
            match answer {
                Ok(answer) if asked.question.is_answered_by(&answer) => {
                    self.say(&asked, asked.question.relayed(answer));
                }
                _ => self.fail(&asked),
            }
        }
        self.answers.keys().copied().collect()
    }

    /// Receives a message at the socket of a query.
    fn receive_at(&mut self, now: Instant, place: u64) {
        let Some(waits) = self.waits.get(&place) else { return };
        let answer = match receive(&waits.socket) {
            Ok(Some(answer)) => answer,
            Ok(None) => return,
            // No process listens at the resolver's port.
            Err(_) => {
                if let Some(waits) = self.take(place) {
                    self.fail(&waits.asked);
                }
                return;
            }
        };
        let answers = match answer.first_chunk::<2>() {
            Some(id) if *id == waits.id && waits.until > now => {
                waits.asked.question.answers(&answer, &waits.section)
            }
            _ => Answers::Nothing,
        };
        if answers == Answers::Nothing {
            self.wrong += 1;
            return;
        }
        self.nameserver.heard();
        let Some(Waits { asked, .. }) = self.take(place) else { return };
        match asked.by.back {
            _ if answers == Answers::InOtherCases => self.ask_by_tcp(asked),
            QuerySource::Connection(_) if !is_whole(&answer) => self.ask_by_tcp(asked),
            _ => self.say(&asked, asked.question.relayed(answer)),
        }
    }

    fn ask_by_tcp(&mut self, asked: GuestQuery) {
        let number = self.numbers.next();
        let [a, b, ..] = number.to_be_bytes();
        let query = asked.question.as_asked([a, b]);
        let is_asked = self
            .nameserver
            .server()
            .is_some_and(|server| self.by_tcp.ask(number, asked.by.instance, server, query));
        if is_asked {
            self.asked_by_tcp.insert(number, asked);
        } else {
            self.fail(&asked);
        }
    }

    /// Removes and returns the answers that wait for an interface.
    pub(super) fn answers(&mut self, port: PortId) -> Vec<(QuerySource, Vec<u8>)> {
        self.answers.remove(&port).unwrap_or_default()
    }

    /// Returns the number of messages, since the last call, that answered no query.
    pub(super) fn take_wrong(&mut self) -> u64 {
        std::mem::take(&mut self.wrong)
    }

    /// Removes the queries and answers of an interface that is gone.
    pub(super) fn forget(&mut self, port: PortId) {
        let of_port = self.waits.iter().filter(|(_, waits)| waits.asked.by.port == port);
        let places: Vec<u64> = of_port.map(|(place, _)| *place).collect();
        for place in places {
            self.take(place);
        }
        self.asked_by_tcp.retain(|_, asked| asked.by.port != port);
        self.answers.remove(&port);
    }
}

/// Whether a datagram has a complete answer. An answer above the announced maximum may have been
/// truncated on its way.
fn is_whole(answer: &[u8]) -> bool {
    !is_truncated(answer) && answer.len() <= usize::from(DATAGRAM_BYTES_MAX)
}

#[cfg(test)]
#[path = "upstream_tests.rs"]
mod tests;
