//! The services of the network at link-local addresses: names, instance metadata, time.
//!
//! Each interface has a separate small TCP/IP stack. So interfaces with the same address in
//! different clouds do not conflict, and no interface gets the answers of another one. Only
//! [`upstream`] uses the machine's network, and only if the machine plays the role of the internet.
//!
//! | file | contents |
//! |---|---|
//! | `stack` | the stack of one interface: packets in, packets out |
//! | `device` | the queues that the stack takes for its device |
//! | `places` | TCP connections, their eviction and their time limits |
//! | `facts` | facts that an instance can request about itself |
//! | `metadata` | the HTTP of instance metadata, version 2 |
//! | `tokens` | the tokens of instance metadata |
//! | `question` | DNS queries, and answers to them |
//! | `resolver` | names of the cloud |
//! | `upstream` | other names, which the machine's resolver answers |
//! | `nameserver`, `by_tcp` | that resolver, by datagrams and by TCP |
//! | `numbers` | unpredictable numbers |
//! | `time` | the time |
//!
//! Bounds: a stack needs 40 KB, and has at most 48 connections with about 6 KB each. The stack is
//! created at the first request of its interface, and is removed with the interface. Before
//! requests reach a stack, the card limits them to 1,024 packets per second for each interface.

mod by_tcp;
mod device;
mod facts;
mod metadata;
mod nameserver;
mod numbers;
mod places;
mod question;
mod resolver;
mod stack;
mod time;
mod tokens;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context, Result};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::PortId;
use srd_net::clock;
use srd_proto::time::Instant;
use srd_vpc::id::EniId;
use srd_vpc::object::World;

pub(crate) use facts::DOMAIN;
use facts::{LookupCache, ServiceData};
use numbers::Numbers;
use stack::{Environment, Stack};
use tokens::Tokens;
use upstream::Upstream;

/// Maximum number of packets of one interface that wait until the services process them.
const WAITING_MAX: usize = 256;

/// The resolver, the metadata service and the time service, for all interfaces.
#[derive(Debug)]
pub(crate) struct Services {
    stacks: BTreeMap<PortId, Stack>,
    tokens: Tokens,
    waiting: BTreeMap<PortId, Vec<Vec<u8>>>,
    upstream: Option<Upstream>,
    known: LookupCache,
    /// Generator of the seeds of stacks.
    seeds: Numbers,
}

impl Services {
    /// Creates the services. `internet`: whether the machine plays the role of the internet; its
    /// resolver then answers queries for names outside the cloud.
    pub(crate) fn new(internet: bool) -> Result<Self> {
        let upstream = internet.then(|| Upstream::of_machine(clock::secret()?)).transpose();
        Ok(Self {
            stacks: BTreeMap::new(),
            tokens: Tokens::new(clock::seed()?),
            waiting: BTreeMap::new(),
            upstream: upstream.context("names of the outside")?,
            known: LookupCache::default(),
            seeds: Numbers::new(clock::secret()?),
        })
    }

    /// Uses the key with which the process that hands over has issued its tokens.
    pub(crate) fn set_token_key(&mut self, key: [u8; 32]) {
        self.tokens = Tokens::new(key);
    }

    /// Returns the key of tokens, for a process that takes over.
    pub(crate) fn token_key(&self) -> [u8; 32] {
        self.tokens.secret()
    }

    /// Stores a frame to a service until [`Services::serve`] is called. Returns false if the frame
    /// is dropped, because too many frames of the interface wait.
    pub(crate) fn take(&mut self, port: PortId, frame: &[u8]) -> bool {
        let waiting = self.waiting.entry(port).or_default();
        let has_room = waiting.len() < WAITING_MAX;
        if let (true, Some(packet)) = (has_room, frame.get(OFFLOAD_BYTES..)) {
            waiting.push(packet.to_vec());
        }
        has_room
    }

    /// Drops the cached data of interfaces and clouds, because the world has changed.
    pub(crate) fn set_world(&mut self) {
        self.known = LookupCache::default();
    }

    /// Returns the data of the services for an interface; `None` if the interface is attached to no
    /// instance.
    pub(crate) fn facts(&mut self, world: &World, eni: EniId) -> Option<Arc<ServiceData>> {
        self.known.of(world, eni)
    }

    /// Returns the descriptors on which the loop waits for answers of the machine's resolver.
    pub(crate) fn fds(&self) -> Vec<Arc<OwnedFd>> {
        self.upstream.as_ref().map(Upstream::fds).unwrap_or_default()
    }

    /// Returns the time at which [`Services::serve`] has to be called next, even without packets.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.stacks.values().filter_map(Stack::poll_timeout).min()
    }

    /// Returns the interfaces for which [`Services::serve`] has to be called now.
    pub(crate) fn due(&mut self, now: Instant) -> BTreeSet<PortId> {
        let mut due: BTreeSet<PortId> = self.waiting.keys().copied().collect();
        let late = self.stacks.iter().filter_map(|(port, stack)| {
            stack.poll_timeout().filter(|at| *at <= now).map(|_| *port)
        });
        due.extend(late);
        due.extend(self.upstream.iter_mut().flat_map(|upstream| upstream.receive(now)));
        due
    }

    /// Processes the waiting packets and timers of one interface. Returns frames for its guest, and
    /// the number of connections that were dropped because the table was full.
    pub(crate) fn serve(
        &mut self,
        now: Instant,
        port: PortId,
        facts: &ServiceData,
    ) -> (Vec<Vec<u8>>, u64) {
        let packets = self.waiting.remove(&port).unwrap_or_default();
        let new = |seeds: &mut Numbers| Stack::new(facts.resolver, now, seeds.next());
        let stack = self.stacks.entry(port).or_insert_with(|| new(&mut self.seeds));
        let mut upstream = self.upstream.as_mut();
        if !stack.is_for(facts) {
            *stack = new(&mut self.seeds);
            // Outstanding answers belong to connections of the previous stack.
            upstream.iter_mut().for_each(|upstream| upstream.forget(port));
        }
        let mut around = Environment { now, port, facts, tokens: &self.tokens, upstream };
        let answers = stack.serve(packets, &mut around);
        let framed = |answer: Vec<u8>| [&[0; OFFLOAD_BYTES][..], &answer].concat();
        (answers.into_iter().map(framed).collect(), std::mem::take(&mut stack.refused))
    }

    /// Returns the number of messages at the sockets of queries, since the last call, that answered
    /// no query.
    pub(crate) fn take_wrong_answers(&mut self) -> u64 {
        self.upstream.as_mut().map_or(0, Upstream::take_wrong)
    }

    /// Removes the state of an interface that is gone, or whose port belongs to another interface
    /// now.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.stacks.remove(&port);
        self.waiting.remove(&port);
        if let Some(upstream) = &mut self.upstream {
            upstream.forget(port);
        }
    }
}

/// Returns the name that EC2 gives to an address: `ip-10-0-1-10` for 10.0.1.10.
fn name_of(address: Ipv4Addr) -> String {
    format!("ip-{}", address.to_string().replace('.', "-"))
}
