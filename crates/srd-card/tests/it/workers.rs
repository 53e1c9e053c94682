//! Several workers of one host, each with a card for some of the instances: limits, ENA Express and
//! packet sizes between two workers. `agreement` compares their verdicts with `explain`.
#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::collections::VecDeque;
use std::sync::Arc;

use srd_card::limits::Allowances;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::workers::{Partition, Redirect};
use srd_card::vpc::{Card, Cause, Envelope, Environment, FrameRoute, Guest, PortCounts, PortId};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::express::Plainly;
use srd_vpc::id::*;
use srd_vpc::judge::Service;
use srd_vpc::object::*;

use crate::lane::{self, HOST, TCP, UDP, open, packet, ports};

/// Packets that an instance may receive and send in a second.
const PACKETS_PER_SECOND: u64 = 10_000;

#[derive(Default)]
struct Out {
    delivered: Vec<Vec<u8>>,
    /// Frames for other workers: the sender's worker, the receiver's worker, and the frame.
    beside: VecDeque<(u8, u8, Envelope, bool, Vec<u8>)>,
    elsewhere: usize,
}

struct ToAll<'a> {
    redirect: &'a Redirect,
    out: &'a mut Out,
}

impl Environment for ToAll<'_> {
    fn to_guest(&mut self, _: PortId, frame: Vec<u8>) {
        self.out.delivered.push(frame);
    }
    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        let beside = &self.redirect.beside;
        match beside.other_named(way.host) {
            Some(to) => {
                let crossing = (beside.worker(), to, way.envelope, way.express, frame);
                self.out.beside.push_back(crossing);
            }
            None => self.out.elsewhere += 1,
        }
    }
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

/// The workers of one host. Instance `n` belongs to worker `n` modulo their number.
struct Workers(Vec<(Card, Redirect)>);

impl Workers {
    fn new(world: &World, count: u8) -> Self {
        let mut partition = Partition::new(HOST, count);
        for n in 0..3_u8 {
            assert!(partition.assign(InstanceId(n.into()), n % count));
        }
        let mut world = world.clone();
        partition.divide(&mut world, |_| 1);
        let kind = InstanceType::find("c7i.24xlarge").unwrap();
        let profile = Profile::of(kind).with_packets_per_second(PACKETS_PER_SECOND);
        let all = (0..count).map(|worker| {
            let beside = partition.view(worker, &world);
            let rules = Arc::new(Rules::compile(&world, beside.name()));
            let mut card = Card::new(beside.name(), rules, Secret::known(7));
            card.set_beside(&beside);
            card.set_host_bytes_max(1400);
            for n in (0..3_u8).filter(|n| n % count == worker) {
                let guest = Guest { eni: EniId(n.into()), timeouts: Timeouts::DEFAULT };
                card.add_instance(Instant::ZERO, &profile, &[guest]);
            }
            (card, Redirect::new(beside))
        });
        Self(all.collect())
    }

    fn at(&self, eni: u64) -> (usize, PortId) {
        let mut all = self.0.iter().enumerate();
        all.find_map(|(at, (card, _))| Some((at, card.port_of(EniId(eni))?))).unwrap()
    }

    fn with(&mut self, at: usize, out: &mut Out, work: impl FnOnce(&mut Card, &mut ToAll<'_>)) {
        let (card, redirect) = &mut self.0[at];
        work(card, &mut ToAll { redirect, out });
    }

    /// Passes frames from worker to worker until all are delivered. Returns whether each was
    /// to be carried by SRD.
    fn exchange(&mut self, now: Instant, out: &mut Out) -> Vec<bool> {
        let mut by_srd = Vec::new();
        while let Some((from, to, envelope, express, frame)) = out.beside.pop_front() {
            by_srd.push(express);
            let name = Arc::clone(self.0[usize::from(from)].1.beside.name());
            self.with(to.into(), out, |card, around| {
                card.from_host(now, &name, envelope, frame, around);
            });
        }
        by_srd
    }

    fn send(&mut self, now: Instant, eni: u64, packet: &[u8], out: &mut Out) -> Vec<bool> {
        let (at, port) = self.at(eni);
        let frame = [&[0; OFFLOAD_BYTES][..], packet].concat();
        self.with(at, out, |card, around| card.from_guest(now, port, frame, around));
        self.exchange(now, out)
    }

    fn counts(&self, eni: u64) -> (PortCounts, Allowances) {
        let (at, port) = self.at(eni);
        (self.0[at].0.counts(port), self.0[at].0.allowances(port).0)
    }
}

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Two instances send more packets to a third one than it may receive. What arrives, and all
/// counters of the three, are the same for any number of workers. // W1
#[test]
fn limits_and_counters_of_an_instance_are_those_of_one_worker() {
    let run = |count: u8| {
        let mut workers = Workers::new(&lane::world(&[], [open(), open(), open()]), count);
        let mut arrived = Vec::new();
        for ms in 0..2000 {
            let mut out = Out::default();
            for n in 0..6_u16 {
                for from in [1_u8, 2] {
                    let transport = ports(1000 + n % 4, 53);
                    let sent = packet((from, 0), UDP, 0, &transport);
                    workers.send(at_ms(ms), from.into(), &sent, &mut out);
                }
            }
            for at in 0..workers.0.len() {
                workers.with(at, &mut out, |card, around| card.poll(at_ms(ms), around));
            }
            workers.exchange(at_ms(ms), &mut out);
            assert_eq!(out.elsewhere, 0);
            arrived.push(out.delivered.len());
        }
        (arrived, [0, 1, 2].map(|eni| workers.counts(eni)))
    };
    let (arrived, counts) = run(1);
    let sum: usize = arrived.iter().sum();
    assert!((19_500..23_500).contains(&sum), "{sum} of 24,000 packets in 2 s");
    assert!(counts[0].1 != Allowances::default(), "the limit was reached");
    for count in [2, 3] {
        assert_eq!(run(count), (arrived.clone(), counts), "{count} workers");
    }
}

/// Packets between two workers stay on this host: SRD carries none, large ones are neither refused
/// nor divided, and the MSS of connections stays. // W2
#[test]
fn packets_to_another_worker_use_no_srd_and_may_be_large() {
    let mut world = lane::world(&[], [open(), open(), open()]);
    for n in [0, 1] {
        let eni = world.enis.get_mut(&EniId(n)).unwrap();
        eni.attachment.as_mut().unwrap().express = ExpressSpec { enabled: true, udp: true };
    }
    for count in [1, 2] {
        let mut workers = Workers::new(&world, count);
        let mut out = Out::default();
        // A SYN with an MSS of 8,961, and then a packet that may not be fragmented.
        let mut syn = ports(5000, 80);
        (syn[12], syn[13]) = (0x60, 2);
        syn.extend([2, 4, 0x23, 1]);
        let syn = packet((0, 1), TCP, 0x4000, &syn);
        let mut large = ports(5000, 80);
        (large[13], large[7]) = (0x10, 1);
        large.resize(8000, 7);
        let large = packet((0, 1), TCP, 0x4000, &large);
        let crossed: Vec<bool> = [&syn, &large]
            .into_iter()
            .flat_map(|packet| workers.send(at_ms(1), 0, packet, &mut out))
            .collect();
        assert_eq!(crossed, vec![false; if count == 1 { 0 } else { 2 }]);
        let arrived: Vec<&[u8]> = out.delivered.iter().map(|of| &of[OFFLOAD_BYTES..]).collect();
        assert_eq!(arrived, [&syn[..], &large[..]], "{count} workers");
        let (counts, _) = workers.counts(0);
        assert_eq!((counts.express_tx_packets, counts.express_eligible_packets), (0, 0));
        let (at, port) = workers.at(0);
        let mut flows = Vec::new();
        workers.0[at].0.list_flows(port, 0, 1 << 16, &mut flows);
        assert_eq!(flows[0].ride, Some(Err(Plainly::OneHost)));
    }
}

/// A worker takes packets for an interface only from the worker or the host that has it. // V6
#[test]
fn a_worker_takes_no_packet_of_an_interface_from_another_host() {
    let mut workers = Workers::new(&lane::world(&[], [open(), open(), open()]), 3);
    let frame = [&[0; OFFLOAD_BYTES][..], &packet((1, 0), TCP, 0, &ports(5000, 80))].concat();
    let envelope = Envelope::Between { from: EniId(1), to: EniId(0) };
    for (name, arrives) in
        [("mallory", 0), (HOST, 0), ("here (worker 2)", 0), ("here (worker 1)", 1)]
    {
        let mut out = Out::default();
        let (name, frame) = (Arc::from(name), frame.clone());
        workers.with(0, &mut out, |card, around| {
            card.from_host(at_ms(1), &name, envelope, frame, around);
        });
        assert_eq!(out.delivered.len(), arrives, "{name}");
    }
    let (at, port) = workers.at(0);
    assert_eq!(workers.0[at].0.drops(port).of(Cause::NotItsHost), 3);
}
