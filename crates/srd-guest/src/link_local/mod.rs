//! The network's own services at link-local addresses: names, instance metadata, time.
//!
//! Each interface has a small TCP/IP stack of its own, so that interfaces with the same address in
//! different clouds never meet, and none sees another's answers. Nothing here touches the machine's
//! network but [`upstream`], and that only if the machine stands for the internet.
//!
//! | file | what |
//! |---|---|
//! | `stack` | the stack of one interface: packets in, packets out |
//! | `facts` | what an instance may know of itself |
//! | `metadata` | the HTTP of instance metadata, with its tokens |
//! | `resolver` | names of the cloud |
//! | `upstream` | other names, asked of the machine's resolver |
//! | `time` | the time |
//!
//! Bounds: a stack has 32 connections and some 260 KB; it is made when its interface first asks,
//! and goes with the interface. Requests are limited before they come here, to 1,024 packets a
//! second and interface.

mod facts;
mod metadata;
mod resolver;
mod stack;
mod time;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::PortId;
use srd_proto::time::Instant;
use srd_vpc::id::EniId;
use srd_vpc::object::World;

use facts::{Facts, Known};
use stack::Stack;
use upstream::Upstream;

/// Packets of one interface that wait for their turn.
const WAITING_MAX: usize = 256;

/// The services of all interfaces.
#[derive(Debug, Default)]
pub(crate) struct Services {
    stacks: BTreeMap<PortId, Stack>,
    waiting: BTreeMap<PortId, Vec<Vec<u8>>>,
    upstream: Option<Upstream>,
    known: Known,
}

impl Services {
    /// With the machine's resolver for names that are none of the cloud's, if the machine stands
    /// for the internet and has one.
    pub(crate) fn new(internet: bool) -> Self {
        let upstream = if internet { Upstream::of_machine() } else { None };
        Self { upstream, ..Self::default() }
    }

    /// Keeps a frame for a service until [`Services::serve`]. `false` if too many wait.
    pub(crate) fn take(&mut self, port: PortId, frame: &[u8]) -> bool {
        let waiting = self.waiting.entry(port).or_default();
        let has_room = waiting.len() < WAITING_MAX;
        if let (true, Some(packet)) = (has_room, frame.get(OFFLOAD_BYTES..)) {
            waiting.push(packet.to_vec());
        }
        has_room
    }

    /// The clouds have changed.
    pub(crate) fn set_world(&mut self) {
        self.known = Known::default();
    }

    /// What the services say to an interface; `None` if it is in no instance.
    pub(crate) fn facts(&mut self, world: &World, eni: EniId) -> Option<Arc<Facts>> {
        self.known.of(world, eni)
    }

    /// What to wait on.
    pub(crate) fn fd(&self) -> Option<Arc<OwnedFd>> {
        self.upstream.as_ref().map(Upstream::fd)
    }

    /// When to call [`Services::serve`] next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.stacks.values().filter_map(Stack::poll_timeout).min()
    }

    /// Interfaces that have something to do.
    pub(crate) fn due(&mut self, now: Instant) -> BTreeSet<PortId> {
        let mut due: BTreeSet<PortId> = self.waiting.keys().copied().collect();
        let late = self.stacks.iter().filter_map(|(port, stack)| {
            stack.poll_timeout().filter(|at| *at <= now).map(|_| *port)
        });
        due.extend(late);
        due.extend(self.upstream.iter_mut().flat_map(|upstream| upstream.receive(now)));
        due
    }

    /// Works for one interface: frames for its guest.
    pub(crate) fn serve(&mut self, now: Instant, port: PortId, facts: &Facts) -> Vec<Vec<u8>> {
        let packets = self.waiting.remove(&port).unwrap_or_default();
        let stack = self.stacks.entry(port).or_insert_with(|| Stack::new(facts.resolver, now));
        let answers = stack.serve(now, port, packets, facts, self.upstream.as_mut());
        let framed = |answer: Vec<u8>| [&[0; OFFLOAD_BYTES][..], &answer].concat();
        answers.into_iter().map(framed).collect()
    }

    /// An interface is gone, or has become another's.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.stacks.remove(&port);
        self.waiting.remove(&port);
        if let Some(upstream) = &mut self.upstream {
            upstream.forget(port);
        }
    }
}

/// The name that EC2 gives to an address: `ip-10-0-1-10`.
fn name_of(address: Ipv4Addr) -> String {
    format!("ip-{}", address.to_string().replace('.', "-"))
}
