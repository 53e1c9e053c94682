//! Names that are none of the cloud's: the machine's own resolver is asked.
//!
//! A question is asked by a datagram; one that a guest has asked by TCP is asked by TCP again if
//! its answer does not fit. An answer counts only from the resolver that was asked, to a number
//! that nobody outside knows, and if it repeats the question.
//!
//! Bounds: so many questions are under way, each for a few seconds. When all places are taken, the
//! oldest question of the instance with most makes place, whatever number of interfaces it has: an
//! instance that asks much hurts itself.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use smoltcp::socket::udp::UdpMetadata;
use srd_card::vpc::PortId;
use srd_proto::time::{Duration, Instant};
use srd_vpc::id::InstanceId;

use super::by_tcp::ByTcp;
use super::nameserver::Nameserver;
use super::question::{Code, DATAGRAM_BYTES_MAX, Question, is_truncated};

/// Questions under way.
const ASKED_MAX: usize = 1024;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where a machine names its resolvers, and their port.
const FILE: &str = "/etc/resolv.conf";
const PORT: u16 = 53;

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

/// A question under way.
#[derive(Debug)]
struct Asked {
    by: Asker,
    question: Question,
    until: Instant,
}

/// What is asked of the machine's resolver.
#[derive(Debug)]
pub(super) struct Upstream {
    nameserver: Nameserver,
    by_tcp: ByTcp,
    asked: BTreeMap<[u8; 2], Asked>,
    /// The numbers of an instance's questions, the oldest first.
    of_instances: BTreeMap<InstanceId, VecDeque<[u8; 2]>>,
    asked_by_tcp: BTreeMap<u64, Asked>,
    answers: BTreeMap<PortId, Vec<(Back, Vec<u8>)>>,
    numbers: Numbers,
}

/// Numbers that nobody can guess: a pseudo-random function of a counter.
#[derive(Debug)]
struct Numbers {
    key: [u8; 16],
    count: u64,
}

impl Numbers {
    fn next(&mut self) -> u64 {
        self.count += 1;
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write_u64(self.count);
        hasher.finish()
    }
}

impl Upstream {
    /// The resolver of this machine, with a random seed.
    pub(super) fn of_machine(seed: [u8; 32]) -> io::Result<Self> {
        Self::new(Nameserver::new(Path::new(FILE), PORT), seed)
    }

    pub(super) fn new(nameserver: Nameserver, seed: [u8; 32]) -> io::Result<Self> {
        let key = std::array::from_fn(|at| seed[at]);
        Ok(Self {
            nameserver,
            by_tcp: ByTcp::new()?,
            asked: BTreeMap::new(),
            of_instances: BTreeMap::new(),
            asked_by_tcp: BTreeMap::new(),
            answers: BTreeMap::new(),
            numbers: Numbers { key, count: 0 },
        })
    }

    /// What to wait on.
    pub(super) fn fds(&self) -> Vec<Arc<OwnedFd>> {
        self.nameserver.fd().into_iter().chain([self.by_tcp.fd()]).collect()
    }

    /// Asks. `false` if the resolver cannot be reached.
    pub(super) fn ask(&mut self, now: Instant, by: Asker, question: &Question) -> bool {
        if self.nameserver.follow(now) {
            // Nothing comes back from the one before.
            self.asked.clear();
            self.of_instances.clear();
        }
        self.make_place(now);
        let number = loop {
            let [a, b, ..] = self.numbers.next().to_be_bytes();
            if !self.asked.contains_key(&[a, b]) {
                break [a, b];
            }
        };
        let is_sent = self.nameserver.send(now, &question.of_ours(number));
        if is_sent {
            self.of_instances.entry(by.instance).or_default().push_back(number);
            let asked = Asked { by, question: question.clone(), until: now + PATIENCE };
            self.asked.insert(number, asked);
        }
        is_sent
    }

    /// Sees to it that there is a place for one more.
    fn make_place(&mut self, now: Instant) {
        if self.asked.len() < ASKED_MAX {
            return;
        }
        let is_over =
            |number: &&[u8; 2]| self.asked.get(*number).is_none_or(|asked| asked.until <= now);
        let of_instances = self.of_instances.values();
        let over = of_instances.flat_map(|numbers| numbers.iter().take_while(is_over));
        let over: Vec<[u8; 2]> = over.copied().collect();
        for number in &over {
            self.take(*number);
        }
        if self.asked.len() < ASKED_MAX {
            return;
        }
        let most = self.of_instances.values().max_by_key(|numbers| numbers.len());
        let oldest = most.and_then(|numbers| numbers.front().copied());
        if let Some(asked) = oldest.and_then(|number| self.take(number)) {
            self.fail(&asked);
        }
    }

    /// A question that is under way no more.
    fn take(&mut self, number: [u8; 2]) -> Option<Asked> {
        let asked = self.asked.remove(&number)?;
        if let Some(numbers) = self.of_instances.get_mut(&asked.by.instance) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.of_instances.remove(&asked.by.instance);
            }
        }
        Some(asked)
    }

    fn say(&mut self, asked: &Asked, answer: Vec<u8>) {
        let answer = match asked.by.back {
            Back::Datagram(_) => asked.question.fitting(answer),
            Back::Connection(_) => answer,
        };
        self.answers.entry(asked.by.port).or_default().push((asked.by.back, answer));
    }

    fn fail(&mut self, asked: &Asked) {
        self.say(asked, asked.question.fail(Code::ServerFailure));
    }

    /// Takes what the resolver says: the interfaces that have an answer now.
    pub(super) fn receive(&mut self, now: Instant) -> Vec<PortId> {
        while let Some(answer) = self.nameserver.receive() {
            let Some(number) = answer.first_chunk::<2>() else { continue };
            let is_its =
                |asked: &Asked| asked.until > now && asked.question.is_answered_by(&answer);
            if !self.asked.get(number).is_some_and(is_its) {
                continue;
            }
            let Some(asked) = self.take(*number) else { continue };
            match asked.by.back {
                Back::Connection(_) if !is_whole(&answer) => self.ask_by_tcp(asked),
                _ => self.say(&asked, asked.question.relayed(answer)),
            }
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

    fn ask_by_tcp(&mut self, asked: Asked) {
        let number = self.numbers.next();
        let [a, b, ..] = number.to_be_bytes();
        let query = asked.question.of_ours([a, b]);
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

    /// An interface is gone.
    pub(super) fn forget(&mut self, port: PortId) {
        let of_port = self.asked.iter().filter(|(_, asked)| asked.by.port == port);
        let numbers: Vec<[u8; 2]> = of_port.map(|(number, _)| *number).collect();
        for number in numbers {
            self.take(number);
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
