//! Names that are none of the cloud's: the machine's own resolver is asked.
//!
//! A question is asked by a datagram; one that a guest has asked by TCP is asked by TCP again if
//! its answer does not fit. An answer counts only from the resolver that was asked, to the port of
//! its question, under its number, and if it repeats the name with the letters' cases that were
//! drawn for it (RFC 5452): somebody who cannot see the question has to guess all of these. If
//! nothing but the cases is wrong, the resolver may be one that changes them: it is asked by TCP,
//! where nobody else can answer.
//!
//! Bounds: [`ASKED_MAX`] questions are under way, each for a few seconds and with a socket of its
//! own. When all places are taken, the oldest question of the instance with most makes place,
//! whatever number of interfaces it has: an instance that asks much hurts itself. One turn reads
//! [`RECEIVED_MAX`] messages, and an interface has [`ANSWERS_MAX`] answers that it has not taken.

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

/// Questions under way.
const ASKED_MAX: usize = 1024;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Messages that are read in one turn.
const RECEIVED_MAX: usize = 256;
/// Answers of one interface that it has not taken: it takes them in the same turn.
const ANSWERS_MAX: usize = 2 * ASKED_MAX;
/// Where a machine names its resolvers, and their port.
const FILE: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Where a question came from, in the stack of an interface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Back {
    Datagram(UdpMetadata),
    /// A connection, by its number.
    Connection(u64),
}

/// Whose question it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) instance: InstanceId,
    pub(super) port: PortId,
    pub(super) back: Back,
}

/// A question.
#[derive(Debug)]
struct Asked {
    by: Asker,
    question: Question,
}

/// A question under way by a datagram.
#[derive(Debug)]
struct Waits {
    asked: Asked,
    /// Its own: the kernel has drawn the port.
    socket: UdpSocket,
    id: [u8; 2],
    /// Name, type and class with the cases that were drawn.
    section: Vec<u8>,
    until: Instant,
}

/// What is asked of the machine's resolver.
#[derive(Debug)]
pub(super) struct Upstream {
    nameserver: Nameserver,
    by_tcp: ByTcp,
    /// By their places in the order of asking.
    waits: BTreeMap<u64, Waits>,
    next: u64,
    /// Waits for all sockets.
    epoll: Arc<OwnedFd>,
    /// The places of an instance's questions, the oldest first.
    of_instances: BTreeMap<InstanceId, VecDeque<u64>>,
    asked_by_tcp: BTreeMap<u64, Asked>,
    answers: BTreeMap<PortId, Vec<(Back, Vec<u8>)>>,
    numbers: Numbers,
    /// Messages that answer no question.
    wrong: u64,
}

impl Upstream {
    /// The resolver of this machine.
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

    /// What to wait on.
    pub(super) fn fds(&self) -> Vec<Arc<OwnedFd>> {
        vec![Arc::clone(&self.epoll), self.by_tcp.fd()]
    }

    /// Asks. `false` if the resolver cannot be reached.
    pub(super) fn ask(&mut self, now: Instant, by: Asker, question: &Question) -> bool {
        if self.nameserver.follow(now) {
            // Nothing comes back from the one before.
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
        let asked = Asked { by, question: question.clone() };
        self.waits.insert(place, Waits { asked, socket, id, section, until: now + PATIENCE });
        true
    }

    /// Sees to it that there is a place for one more, and that none is kept for longer than an
    /// answer is waited for.
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

    /// A question that is under way no more.
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

    fn say(&mut self, asked: &Asked, answer: Vec<u8>) {
        let answer = match asked.by.back {
            Back::Datagram(_) => asked.question.fitting(answer),
            Back::Connection(_) => answer,
        };
        let answers = self.answers.entry(asked.by.port).or_default();
        // The guest asks again.
        if answers.len() < ANSWERS_MAX {
            answers.push((asked.by.back, answer));
        }
    }

    fn fail(&mut self, asked: &Asked) {
        self.say(asked, asked.question.fail(Code::ServerFailure));
    }

    /// Takes what the resolver says: the interfaces that have an answer now.
    pub(super) fn receive(&mut self, now: Instant) -> Vec<PortId> {
        let mut events = [const { MaybeUninit::uninit() }; RECEIVED_MAX];
        let waited = epoll::wait(&self.epoll, &mut events[..], Some(&NO_TIME));
        let ready = waited.map_or(&[][..], |(events, _)| events);
        for event in ready {
            // One message of each: the kernel tells of further ones again.
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

    /// Takes a message at the socket of a question.
    fn receive_at(&mut self, now: Instant, place: u64) {
        let Some(waits) = self.waits.get(&place) else { return };
        let answer = match receive(&waits.socket) {
            Ok(Some(answer)) => answer,
            Ok(None) => return,
            // Nobody listens there.
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
            Back::Connection(_) if !is_whole(&answer) => self.ask_by_tcp(asked),
            _ => self.say(&asked, asked.question.relayed(answer)),
        }
    }

    fn ask_by_tcp(&mut self, asked: Asked) {
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

    /// The answers for an interface.
    pub(super) fn answers(&mut self, port: PortId) -> Vec<(Back, Vec<u8>)> {
        self.answers.remove(&port).unwrap_or_default()
    }

    /// Messages since the last call that answered no question.
    pub(super) fn take_wrong(&mut self) -> u64 {
        std::mem::take(&mut self.wrong)
    }

    /// An interface is gone.
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

/// Whether a datagram has all of an answer. One that is longer than was asked for may have been
/// cut on its way to us.
fn is_whole(answer: &[u8]) -> bool {
    !is_truncated(answer) && answer.len() <= usize::from(DATAGRAM_BYTES_MAX)
}

#[cfg(test)]
#[path = "upstream_tests.rs"]
mod tests;
