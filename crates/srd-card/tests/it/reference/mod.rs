//! Comparison of the card with a naive card, which implements the specification in the simplest
//! way. Both get the same random input: packets of the guest and of peers, in any order, with
//! losses and duplicates; changes of the rules; added and removed peers; passing time; sends that
//! the transport refuses or gives up. The guest's frames, the frames to peers and the counters must
//! be equal.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod card;
mod deltas;
mod order;
mod packets;
pub(crate) mod vpc;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use srd_card::packet::Packet;
use srd_card::{Counters, FlowKey, PeerSlot, Rules};
use srd_proto::rng::Rng;
use srd_proto::time::Duration;
use srd_proto::{DownReason, Event};

use self::order::{Chunk, Name};
use self::packets::{OFFLOAD_BYTES, Spec, TCP};
use self::world::{MACHINES, World, own_addresses};

/// Number of random steps of one test case (a story).
const STEPS: u32 = 300;

/// A random test case: both cards, and input that they have not received yet.
struct Story {
    world: World,
    rng: Rng,
    /// Number of the next packet.
    number: u32,
    /// Sequence number of the next frame of each peer's flow.
    next: BTreeMap<Name, u64>,
    /// Chunks in flight, each with whether it is the last of its frame.
    air: Vec<(Chunk, bool)>,
    /// First flow number that peers use at present. It grows whenever flows have been silent for so
    /// long that they take new numbers.
    first_flow: u32,
    was_long_silent: bool,
}

impl Story {
    fn new(seed: u64) -> Self {
        Self {
            world: World::new(seed << 13),
            rng: Rng::new(seed),
            number: 0,
            next: BTreeMap::new(),
            air: Vec::new(),
            first_flow: 0,
            was_long_silent: false,
        }
    }

    fn below(&mut self, many: u32) -> u32 {
        self.rng.below(many)
    }

    fn bit(&mut self) -> bool {
        self.below(2) == 0
    }

    fn peer(&mut self) -> usize {
        1 + self.below(3) as usize
    }

    /// Builds a packet between the guest and a host whose address belongs to a peer.
    fn packet(&mut self, from: usize, to: usize, host: u32) -> Vec<u8> {
        self.number += 1;
        let host = u8::try_from(1 + host % 4).unwrap();
        packets::random(&mut self.rng, (from, to), host, self.number)
    }

    fn step(&mut self) {
        match self.below(40) {
            0..=9 => self.guest_gives(),
            10..=21 => self.peer_sends(),
            22..=23 => self.peer_sends_plainly(),
            24 => self.noise(),
            25..=27 => {
                let ms = [1, 7, 40, 101][self.below(4) as usize];
                self.world.pass(Duration::from_millis(ms));
            }
            28 => self.silence(),
            29 => self.switch(),
            30 => self.switch_by_snapshot(),
            31 => self.move_addresses(),
            32 => self.leave_or_join(),
            33 => self.disconnect_or_reconnect(),
            34 => self.peer_down(),
            35 => self.fail(),
            _ => self.offer(),
        }
    }

    fn guest_gives(&mut self) {
        for _ in 0..1 + self.below(6) {
            let to = 1 + self.below(4) as usize;
            // A few flows only, so that each has many events.
            let host = self.below(2);
            let frame = self.packet(0, to, host);
            self.world.give(&frame);
        }
        if self.below(4) > 0 {
            self.world.drain();
        }
    }

    /// Sends frames of one flow from a peer. Some of their chunks arrive at once, in any order,
    /// some later, some twice, some never.
    fn peer_sends(&mut self) {
        let peer = self.peer();
        let name = (peer, self.first_flow + self.below(4));
        for _ in 0..1 + self.below(4) {
            // Sometimes, the source is an address of another peer.
            let from = if self.below(30) == 0 { self.peer() } else { peer };
            // A flow number belongs to one host, so that two numbers never have the same flow.
            let frame = self.packet(from, 0, name.1);
            let next = self.next.entry(name).or_default();
            *next += u64::from(self.rng.below(40) == 0) * 5000 + u64::from(self.rng.below(12) == 0);
            let sequence = *next;
            *next += 1;
            let size = frame.len().div_ceil(1 + self.below(6) as usize);
            let count = frame.len().div_ceil(size);
            for (at, part) in frame.chunks(size).enumerate() {
                let chunk = u8::try_from(at).unwrap();
                let (frame_bytes, bytes) = (frame.len(), part.to_vec());
                let chunk = Chunk { name, sequence, chunk, frame_bytes, bytes, fits: true };
                self.air.push((chunk, at + 1 == count));
            }
        }
        for _ in 0..self.air.len() {
            let at = self.below(u32::try_from(self.air.len()).unwrap()) as usize;
            let (chunk, last) = match self.below(50) {
                0..=8 => continue,
                9 => self.air[at].clone(),
                _ => self.air.swap_remove(at),
            };
            if self.below(60) > 0 {
                self.world.receive_chunk(chunk, last);
            }
        }
    }

    fn peer_sends_plainly(&mut self) {
        let peer = self.peer();
        let from = if self.below(10) == 0 { self.peer() } else { peer };
        let host = self.below(4);
        let frame = self.packet(from, 0, host);
        self.world.receive_plain(peer, &frame);
    }

    /// Sends a chunk that is longer than its frame.
    fn noise(&mut self) {
        let name = (self.peer(), self.below(8));
        let (sequence, chunk, bytes) = (u64::from(self.below(9)), 0, vec![7; 60]);
        let chunk = Chunk { name, sequence, chunk, frame_bytes: 59, bytes, fits: false };
        let last = self.bit();
        self.world.receive_chunk(chunk, last);
    }

    /// Lets time pass without packets: long enough that senders use new numbers of flows, or
    /// longer, so that receivers remove flows.
    fn silence(&mut self) {
        let forgets = self.bit();
        if !forgets && self.was_long_silent || self.below(4) > 0 {
            return;
        }
        self.was_long_silent = !forgets;
        self.world.drain();
        self.world.pass(Duration::from_secs(if forgets { 140 } else { 61 }));
        self.world.drain();
        // Peers take new numbers as well, as in the specification.
        self.first_flow += 10;
        self.air.clear();
    }

    fn slot(&self, peer: usize) -> Option<PeerSlot> {
        self.world.machines[peer].slot
    }

    fn switch(&mut self) {
        let (peer, on, udp) = (self.peer(), self.bit(), self.bit());
        let World { express, naive, now, machines, .. } = &mut self.world;
        match self.rng.below(4) {
            0 => {
                express.set_enabled(*now, on, udp);
                (naive.express, naive.udp) = (on, udp);
            }
            3 => {
                express.set_tunnels(*now, udp);
                naive.tunnels = udp;
            }
            1 => {
                express.set_order(udp, naive.wait);
                naive.bypass = udp;
            }
            _ => {
                let Some(slot) = machines[peer].slot else { return };
                express.set_express(*now, slot, on, udp);
                let peer = naive.peers.get_mut(&peer).unwrap();
                (peer.express, peer.udp) = (on, udp);
            }
        }
    }

    /// Changes several rules at once, by a new snapshot of the rules.
    fn switch_by_snapshot(&mut self) {
        self.world.drain();
        let mut rules = Rules::clone(self.world.express.rules());
        let (on, udp) = (self.below(4) > 0, self.below(4) > 0);
        rules.set_enabled(on, udp);
        (self.world.naive.express, self.world.naive.udp) = (on, udp);
        let tunnels = self.below(2) > 0;
        rules.set_tunnels(tunnels);
        self.world.naive.tunnels = tunnels;
        for peer in 1..MACHINES {
            let Some(slot) = self.slot(peer) else { continue };
            let (on, udp) = (self.below(4) > 0, self.below(4) > 0);
            rules.set_express(slot, on, udp);
            let allowed = if self.below(6) == 0 { Vec::new() } else { own_addresses(peer) };
            rules.set_allowed(slot, allowed.clone());
            let peer = self.world.naive.peers.get_mut(&peer).unwrap();
            (peer.express, peer.udp, peer.allowed) = (on, udp, allowed);
        }
        let gone = self.peer();
        if self.below(4) == 0
            && let Some(slot) = self.world.machines[gone].slot.take()
        {
            rules.remove_peer(slot);
            self.world.naive.remove_peer(gone);
        }
        let now = self.world.now;
        self.world.express.set_rules(now, Arc::new(rules));
    }

    /// Changes the addresses that belong to a peer. A prefix of another peer may contain a new
    /// prefix, but never equals it.
    fn move_addresses(&mut self) {
        // Waiting frames of a flow would keep later ones at the previous peer.
        self.world.drain();
        let peer = self.peer();
        let Some(slot) = self.slot(peer) else { return };
        let mut allowed = match self.below(4) {
            0 => Vec::new(),
            1 => own_addresses(peer)[..1].to_vec(),
            _ => own_addresses(peer),
        };
        let other = self.peer();
        let host: srd_card::Prefix = format!("10.0.{other}.1/32").parse().unwrap();
        let taken = self.world.naive.peers.values().any(|peer| peer.allowed.contains(&host));
        if self.bit() && !taken {
            allowed.push(host);
        }
        self.world.express.set_allowed(slot, allowed.clone());
        self.world.naive.peers.get_mut(&peer).unwrap().allowed = allowed;
    }

    fn leave_or_join(&mut self) {
        let peer = self.peer();
        if self.slot(peer).is_some() {
            self.world.remove_peer(peer);
        } else {
            // The peer gets back its own addresses.
            self.world.drain();
            self.take_back_addresses(peer);
            self.world.add_peer(peer);
        }
    }

    /// Removes the addresses of a peer from all other peers.
    fn take_back_addresses(&mut self, peer: usize) {
        let own = own_addresses(peer);
        for other in (1..MACHINES).filter(|other| *other != peer) {
            let Some(slot) = self.slot(other) else { continue };
            let known = self.world.naive.peers.get_mut(&other).unwrap();
            known.allowed.retain(|prefix| !own.iter().any(|own| own.contains(prefix.address())));
            self.world.express.set_allowed(slot, known.allowed.clone());
        }
    }

    fn disconnect_or_reconnect(&mut self) {
        let peer = self.peer();
        if self.world.machines[peer].id.is_some() {
            self.world.disconnect(peer);
            return;
        }
        self.world.drain();
        if self.slot(peer).is_some() {
            self.world.remove_peer(peer);
        }
        self.take_back_addresses(peer);
        self.world.add_peer(peer);
    }

    fn peer_down(&mut self) {
        let peer = self.peer();
        let Some(id) = self.world.machines[peer].id else { return };
        self.world.event(&Event::PeerDown { peer: id, reason: DownReason::Unresponsive });
    }

    /// Reports to both cards that the transport has given up a datagram of a flow.
    fn fail(&mut self) {
        self.world.drain();
        let peer = self.peer();
        self.number += 1;
        let (from, to) = (packets::address(0, 1, false), packets::address(peer, 1, false));
        let frame = Spec::new(TCP, from, to, &self.number.to_be_bytes()).frame();
        let to = self.world.express.peer_of(to);
        let owner = (1..MACHINES).find(|m| to.is_some() && self.slot(*m) == to);
        self.world.last_user = None;
        self.world.give(&frame);
        self.world.drain();
        if let (Some(owner), Some(user)) = (owner, self.world.last_user) {
            let key = FlowKey::of(&Packet::read(&frame[OFFLOAD_BYTES..]).unwrap());
            self.world.fail(owner, &key, user);
        }
    }

    fn offer(&mut self) {
        let peer = self.peer();
        let kinds = (self.below(8) > 0, self.below(4) > 0, self.bit());
        let asks = self.bit();
        self.world.receive_offer(peer, kinds, asks);
    }
}

/// Runs one test case (a story), and compares the two cards after each step. Returns the counters.
fn run_story(seed: u64) -> Counters {
    println!("seed {seed}");
    let mut story = Story::new(seed);
    for peer in 1..MACHINES {
        story.world.receive_offer(peer, (true, true, false), false);
    }
    for _ in 0..STEPS {
        story.step();
        story.world.compare();
    }
    story.world.drain();
    story.world.pass(Duration::from_secs(2));
    story.world.drain();
    story.world.compare();
    story.world.compare_offers();
    story.world.express.counters()
}

#[test]
fn the_card_does_what_the_naive_card_does() {
    let counted: Vec<Counters> = (0..40).map(run_story).collect();
    // Each counter has to change in some story, because events that never happen are not tested.
    // The counters of limits stay zero, because the stories stay below the limits.
    let limits = [
        "queue_marked",
        "queue_dropped_late",
        "queue_dropped_full",
        "order_full",
        "flows_full",
        "cloud_malformed",
        "cloud_no_peer",
        "cloud_too_big",
        "cloud_refused",
    ];
    for (at, (name, _)) in counted[0].named().iter().enumerate() {
        let happened = counted.iter().any(|counters| counters.named()[at].1 > 0);
        assert_eq!(happened, !limits.contains(name), "{name}");
    }
}

#[test]
#[ignore = "minutes; more stories of the same kind"]
fn the_card_does_what_the_naive_card_does_for_long() {
    for seed in 1000..5000 {
        run_story(seed);
    }
}
