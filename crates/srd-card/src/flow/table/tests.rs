//! Tests of the flow table: packets that share an entry, repeated evaluation by changed rules, and
//! the replacement of entries.

use super::*;
use crate::meta::packet::protocol;
use crate::queue::scheduler::{Aqm, Kind, Lane, QueueCounts, QueuedFrame, Scheduler};
use crate::rules::prefix::Prefix;
use crate::rules::snapshot::{Carried, PeerSettings, PeerSlot};
use crate::testing::{framed, peer_ids, v4};
use std::vec;

const START: Instant = Instant::ZERO;

fn after(ms: u64) -> Instant {
    START + Duration::from_millis(ms)
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// Rules with two peers: 10.0.0.2 is behind the first, 10.0.0.3 behind the second.
fn rules() -> Rules {
    let mut rules = Rules::new(Carried { express: true, udp: true, tunnels: false });
    for (id, address) in peer_ids(2).into_iter().zip(["10.0.0.2", "10.0.0.3"]) {
        let allowed = vec![prefix(address)];
        rules.add_peer(PeerSettings { id, allowed, express: true, express_udp: true });
    }
    rules
}

/// A UDP packet that the guest sends from `port` to port 53 of 10.0.0.2.
fn egress(port: u16) -> Meta {
    let packet = v4(protocol::UDP, (port, 53), b"");
    Meta::parse(&framed(&packet), Direction::Egress).unwrap()
}

/// A UDP packet from port 53 of 10.0.0.2 to `port` of the guest: an answer to `egress(port)`.
fn ingress(port: u16) -> Meta {
    let mut packet = v4(protocol::UDP, (53, port), b"");
    (packet[15], packet[19]) = (2, 1);
    Meta::parse(&framed(&packet), Direction::Ingress).unwrap()
}

/// A table with its rules.
struct Rig {
    table: FlowTable,
    rules: Rules,
    now: Instant,
}

impl Rig {
    fn new(flows_max: u32) -> Self {
        let mut table = FlowTable::new(flows_max, Secret::known(1));
        table.set_peers(2);
        Self { table, rules: rules(), now: START }
    }

    fn classify(&mut self, meta: &Meta, from: Option<u32>) -> Option<PeerFlow> {
        self.table.classify(self.now, meta, &self.rules, from, None)
    }

    fn out(&mut self, port: u16) -> Option<u32> {
        self.classify(&egress(port), None).unwrap().flow.map(FlowId::slot)
    }

    fn back(&mut self, port: u16) -> Option<u32> {
        self.classify(&ingress(port), Some(0)).unwrap().flow.map(FlowId::slot)
    }
}

#[test]
fn both_directions_of_a_flow_are_one_entry() {
    let mut rig = Rig::new(4);
    let out = rig.classify(&egress(5), None).unwrap();
    let back = rig.classify(&ingress(5), Some(0)).unwrap();
    let (out_id, back_id) = (out.flow.unwrap(), back.flow.unwrap());
    assert_eq!((out_id.slot(), out.peer), (back_id.slot(), back.peer));
    assert_eq!((out_id.direction(), back_id.direction()), (Direction::Egress, Direction::Ingress));
    assert_eq!(rig.table.len(), 1);
    rig.table.count(out_id, 1, 100, true);
    rig.table.count(back_id, 2, 300, false);
    let counts = rig.table.counts[out_id.slot() as usize];
    let (tx, rx) = (counts.of(Direction::Egress), counts.of(Direction::Ingress));
    assert_eq!((tx.pkts, tx.bytes, rx.pkts, rx.bytes), (1, 100, 2, 300));
    assert!(counts.rides_srd, "by the direction that leaves");
}

#[test]
fn a_flow_is_judged_again_when_the_rules_have_changed_and_not_before() {
    let mut rig = Rig::new(4);
    let slot = rig.out(5).unwrap();
    let given = rig.table.entries[slot as usize].verdict;
    assert_eq!((given.peer, given.epoch), (Some(0), rig.rules.epoch()));
    rig.rules.set_allowed(PeerSlot(0), vec![]);
    rig.rules.set_allowed(PeerSlot(1), vec![prefix("10.0.0.2")]);
    assert_eq!(rig.table.entries[slot as usize].verdict, given, "a change costs no look at it");
    assert_eq!(rig.classify(&ingress(5), Some(0)), None, "no longer the first peer's address");
    assert_eq!(rig.classify(&ingress(5), Some(1)).unwrap().peer, 1);
    assert_eq!(rig.classify(&egress(5), None).unwrap().peer, 1);
    rig.rules.remove_peer(PeerSlot(1));
    assert_eq!(rig.classify(&egress(5), None), None);
    assert_eq!(rig.table.len(), 1, "the entry stays until another flow needs its place");
}

#[test]
fn packets_that_are_refused_make_no_entry_and_keep_none() {
    let mut rig = Rig::new(1);
    assert_eq!(rig.classify(&ingress(5), Some(1)), None);
    assert_eq!(rig.table.len(), 0);
    rig.out(5).unwrap();
    rig.now = after(1001);
    assert_eq!(rig.classify(&ingress(5), Some(1)), None);
    assert!(rig.out(6).is_some(), "the forged packet has not kept the entry in use");
}

#[test]
fn a_full_table_refuses_new_flows_until_one_has_been_unused_for_a_second() {
    let mut rig = Rig::new(3);
    let slots = [1, 2, 3].map(|port| rig.out(port).unwrap());
    assert_eq!(rig.out(4), None);
    assert_eq!((rig.table.len(), rig.table.utilization()), (3, 100));
    rig.now = after(1000);
    assert_eq!(rig.out(4), None, "a second has not passed");
    rig.now = after(1001);
    assert_eq!(rig.back(1), Some(slots[0]), "either direction is use");
    let taken = rig.out(4).unwrap();
    assert!(slots[1..].contains(&taken), "{taken} was not the place of a silent flow");
    assert_eq!(rig.out(1), Some(slots[0]));
    assert_eq!(rig.table.len(), 3);
}

#[test]
fn a_flow_with_frames_in_line_keeps_its_place() {
    let mut rig = Rig::new(1);
    let slot = rig.out(1).unwrap();
    let mut scheduler = Scheduler::default();
    push(&mut rig.table, &mut scheduler, slot, 100);
    rig.now = after(5000);
    assert_eq!(rig.out(2), None);
    scheduler.clear(&mut rig.table.queues);
    assert_eq!(rig.out(2), Some(slot));
}

#[test]
fn peers_open_half_of_the_table_at_most_and_the_guest_takes_over() {
    let mut rig = Rig::new(8);
    rig.table.set_peers(1);
    let opened = (0..10).filter(|port| rig.back(*port).is_some()).count();
    assert_eq!((opened, rig.table.len()), (4, 4));
    assert!(rig.classify(&ingress(9), Some(0)).is_some(), "it passes without an entry");
    // The guest answers two of them; their entries are charged to the guest now.
    assert!(rig.out(0).is_some() && rig.out(1).is_some());
    let opened = (10..20).filter(|port| rig.back(*port).is_some()).count();
    assert_eq!((opened, rig.table.len()), (2, 6));
    // A new flow of a peer replaces another flow of this peer.
    rig.now = after(2000);
    assert!(rig.back(20).is_some());
    assert_eq!(rig.table.len(), 6);
    assert!((30..40).filter(|port| rig.out(*port).is_some()).count() >= 2);
    assert_eq!(rig.table.len(), 8);
}

#[test]
fn the_table_takes_no_more_bytes_than_are_said() {
    let flows_max = 1000;
    let mut rig = Rig::new(flows_max);
    for peer in 0..5 {
        rig.table.open_overflow(START, peer).unwrap();
    }
    let mut scheduler = Scheduler::default();
    for round in 0..3 {
        rig.now = after(round * 2000);
        for port in 0..2000 {
            let port = port + 2000 * u16::try_from(round).unwrap();
            if let Some(slot) = rig.out(port) {
                push(&mut rig.table, &mut scheduler, slot, 100);
            }
            assert!(rig.table.bytes() <= (flows_max as usize + 5) * ENTRY_BYTES);
        }
        assert_eq!(rig.table.len(), flows_max as usize);
        let aqm = AQM;
        while let Some(turn) = scheduler.next(&mut rig.table.queues, Lane::Plain) {
            let (queues, counts) = (&mut rig.table.queues, &mut QueueCounts::default());
            scheduler.take(queues, turn, Lane::Plain, rig.now, &aqm, counts);
        }
    }
}

impl FlowTable {
    /// Heap bytes of the table.
    fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.numbering.capacity() * size_of::<Numbering>()
            + self.queues.capacity() * (size_of::<FlowQueue>() + FlowQueue::KEPT_BYTES)
            + self.counts.capacity() * size_of::<Counts>()
            + self.index.allocation_size()
    }
}

const AQM: Aqm =
    Aqm { target: Duration::from_secs(1), interval: Duration::from_secs(1), bytes_max: 1 << 20 };

fn push(table: &mut FlowTable, scheduler: &mut Scheduler, slot: u32, bytes: usize) {
    let packet = v4(protocol::UDP, (1, 2), &vec![0; bytes]);
    let (frame, layout) = (framed(&packet), crate::testing::layout(&packet));
    let waiting = QueuedFrame { frame, layout, at: START, kind: Kind::Other, path: 0 };
    scheduler.push(&mut table.queues, (0, slot), waiting, &AQM, &mut QueueCounts::default());
}

#[test]
fn regression_an_address_that_moves_takes_no_flow_out_of_its_old_queue() {
    let mut rig = Rig::new(8);
    let mut old = Scheduler::default();
    let [bulk, short] = [1, 2].map(|port| rig.out(port).unwrap());
    for (slot, bytes) in [(bulk, 20_000), (bulk, 20_000), (short, 100)] {
        push(&mut rig.table, &mut old, slot, bytes);
    }
    let mut take = |table: &mut FlowTable| {
        let turn = old.next(&mut table.queues, Lane::Plain)?;
        let counts = &mut QueueCounts::default();
        old.take(&mut table.queues, turn, Lane::Plain, START, &AQM, counts).map(|_| turn.slot)
    };
    // The short flow becomes empty while the bulk flow has more frames. So the short flow stays in
    // a list of the scheduler, without a frame.
    assert_eq!([take(&mut rig.table), take(&mut rig.table)], [Some(bulk), Some(short)]);
    // The flow's address moves to another peer. The flow follows when it is in no list of the old
    // peer.
    rig.rules.set_allowed(PeerSlot(0), vec![]);
    rig.rules.set_allowed(PeerSlot(1), vec![prefix("10.0.0.2")]);
    let line = |table: &mut FlowTable| {
        let found = table.classify(START, &egress(2), &rig.rules, None, None).unwrap();
        assert_eq!((found.peer, found.flow.unwrap().slot()), (1, short));
        table.queue_of(found.flow.unwrap(), found.peer)
    };
    assert_eq!(line(&mut rig.table), 0);
    assert_eq!(take(&mut rig.table), Some(bulk));
    assert_eq!(take(&mut rig.table), None);
    assert_eq!(line(&mut rig.table), 1);
}
