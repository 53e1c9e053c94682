//! Traces of packets: the records of each packet have one beginning and one end, and describe what
//! the card has done with the packet.
#![allow(clippy::unwrap_used)]

use crate::lane::*;
use srd_card::Direction;
use srd_card::limits::Limit;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::track::State;
use srd_card::vpc::trace::{
    BYTES_MAX, Event, Filter, Next, RECORDS_MAX, Record, TRACES_MAX, TooManyTraces, TraceId,
};
use srd_card::vpc::{Cause, PortId};
use srd_proto::time::{Duration, Instant};
use srd_vpc::judge::Reason;
use std::collections::BTreeMap;

const ALL: u32 = u32::MAX;

fn lab() -> Lab {
    Lab::new(&world(&[], [open(), open(), open()]))
}

fn send(lab: &mut Lab, now: Instant, from: usize, packet: &[u8]) -> usize {
    let mut around = Delivered::default();
    let frame = [&[0; OFFLOAD_BYTES][..], packet].concat();
    lab.card.from_guest(now, lab.ports[from], frame, &mut around);
    around.0.len()
}

fn tcp(ends: (u8, u8), ports: (u16, u16), bytes: usize) -> Vec<u8> {
    packet(ends, TCP, 0, &[self::ports(ports.0, ports.1), vec![7; bytes]].concat())
}

fn take(lab: &mut Lab, id: TraceId) -> Vec<Record> {
    lab.card.take_trace(id, usize::MAX, usize::MAX).unwrap().records
}

fn events(records: &[Record]) -> Vec<(u32, &Event)> {
    records.iter().map(|record| (record.packet, &record.event)).collect()
}

#[test]
fn a_packet_between_two_interfaces_is_followed_on_both() {
    let mut lab = lab();
    let id = lab.card.begin_trace(Filter::default(), ALL, 28).unwrap();
    let syn = tcp((0, 1), (5, 443), 100);
    assert_eq!(send(&mut lab, Instant::ZERO, 0, &syn), 1);
    let records = take(&mut lab, id);
    let [
        (1, Event::Arrived(sent)),
        (1, Event::Judged { by_rules: true, verdict: Ok(to), flow: Some(after) }),
        (1, Event::Gone(gone)),
        (2, Event::Arrived(got)),
        (2, Event::Judged { by_rules: true, verdict: Ok(Next::Guest), flow: Some(_) }),
        (2, Event::Gone(Next::Guest)),
    ] = &events(&records)[..]
    else {
        panic!("{records:?}")
    };
    assert_eq!((sent.interface, sent.direction), (lab.ports[0], Direction::Egress));
    assert_eq!((got.interface, got.direction), (lab.ports[1], Direction::Ingress));
    assert_eq!((sent.flow, sent.bytes as usize, sent.packets), (None, syn.len(), 1));
    assert_eq!(sent.head, syn[..28]);
    assert_eq!((to, gone), (&Next::Interface(lab.ports[1]), &Next::Interface(lab.ports[1])));
    // Rules that admit all packets in both directions track no connections.
    assert_eq!((after.state, after.tracked, after.local_first), (State::Opening, false, true));

    // For the next packet of the flow, the verdict is stored, and the trace records the previous
    // state.
    send(&mut lab, Instant::ZERO, 0, &syn);
    let records = take(&mut lab, id);
    let asked = records.iter().any(|r| matches!(r.event, Event::Judged { by_rules: true, .. }));
    let Event::Arrived(again) = &records[0].event else { panic!() };
    assert!(!asked && again.flow == Some(*after), "{records:?}");
}

#[test]
fn a_refusal_and_its_cause_end_a_packet() {
    let mut lab = Lab::new(&world(&[], [open(), Vec::new(), open()]));
    let id = lab.card.begin_trace(Filter::default(), ALL, 0).unwrap();
    assert_eq!(send(&mut lab, Instant::ZERO, 0, &tcp((0, 1), (5, 443), 0)), 0);
    let records = take(&mut lab, id);
    let end = &records.last().unwrap().event;
    let refused = Err(Cause::Rule(Reason::GroupsIn));
    assert!(matches!(end, Event::Judged { verdict, .. } if *verdict == refused), "{records:?}");
}

#[test]
fn each_condition_of_a_filter_holds() {
    let [there, here] = [v4(11), v4(10)].map(std::net::IpAddr::V4);
    let none = Filter::default;
    let cases = [
        (none(), true),
        (Filter { protocol: Some(TCP), ..none() }, true),
        (Filter { protocol: Some(17), ..none() }, false),
        (Filter { source: Some(here), ..none() }, true),
        (Filter { source: Some(there), ..none() }, false),
        (Filter { destination: Some(there), ..none() }, true),
        (Filter { destination: Some(here), ..none() }, false),
        (Filter { host: Some(there), ..none() }, true),
        (Filter { host: Some([9, 9, 9, 9].into()), ..none() }, false),
        (Filter { source_port: Some(5), ..none() }, true),
        (Filter { source_port: Some(443), ..none() }, false),
        (Filter { destination_port: Some(443), ..none() }, true),
        (Filter { destination_port: Some(5), ..none() }, false),
        (Filter { port: Some(443), ..none() }, true),
        (Filter { port: Some(6), ..none() }, false),
        (Filter { protocol: Some(TCP), port: Some(6), ..none() }, false),
    ];
    for (filter, takes) in cases {
        let mut lab = lab();
        let id = lab.card.begin_trace(filter.clone(), ALL, 0).unwrap();
        send(&mut lab, Instant::ZERO, 0, &tcp((0, 1), (5, 443), 0));
        assert_eq!(!take(&mut lab, id).is_empty(), takes, "{filter:?}");
    }
    let mut lab = lab();
    let interfaces = vec![lab.ports[1]];
    let id = lab.card.begin_trace(Filter { interfaces, ..none() }, ALL, 0).unwrap();
    send(&mut lab, Instant::ZERO, 0, &tcp((0, 1), (5, 443), 0));
    let records = take(&mut lab, id);
    let at: Vec<PortId> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::Arrived(arrived) => Some(arrived.interface),
            _ => None,
        })
        .collect();
    assert_eq!(at, [lab.ports[1]]);
}

/// Packets of four flows are sent until limits have delayed some packets and dropped other packets.
/// Each packet of the trace has exactly one end, and the number of records of each limit equals the
/// card's counter.
#[test]
fn what_limits_hold_up_and_drop_is_noted() {
    let mut lab = lab();
    let id = lab.card.begin_trace(Filter::default(), ALL, 0).unwrap();
    let large = [5, 6, 7, 8].map(|port| tcp((0, 1), (port, 443), 8000));
    let (mut records, mut now, mut sent) = (Vec::new(), Instant::ZERO, 0_u64);
    let held = |lab: &Lab, port: usize, limit| lab.card.held(lab.ports[port], limit);
    while held(&lab, 0, Limit::Flow).dropped < 20 || held(&lab, 0, Limit::BandwidthOut).queued < 20
    {
        send(
            &mut lab,
            now,
            0,
            large.iter().cycle().nth(usize::try_from(sent % 4).unwrap()).unwrap(),
        );
        sent += 1;
        records.append(&mut take(&mut lab, id));
        assert!(sent < 200_000);
    }
    while let Some(at) = lab.card.poll_timeout() {
        now = at;
        lab.card.poll(now, &mut Delivered::default());
        records.append(&mut take(&mut lab, id));
    }
    let mut ends: BTreeMap<u32, usize> = BTreeMap::new();
    let mut ports: BTreeMap<u32, PortId> = BTreeMap::new();
    let (mut waited, mut dropped) = (BTreeMap::new(), BTreeMap::new());
    for Record { packet, event, .. } in &records {
        let ended = ends.entry(*packet).or_default();
        match event {
            Event::Arrived(arrived) => drop(ports.insert(*packet, arrived.interface)),
            Event::Waits(Some(limit)) => {
                *waited.entry((ports[packet], *limit as u8)).or_insert(0_u64) += 1;
            }
            Event::Waits(None) | Event::Asks => {}
            Event::OverLimit(limit) => {
                *dropped.entry((ports[packet], *limit as u8)).or_insert(0_u64) += 1;
                *ended += 1;
            }
            Event::Dropped(_) | Event::Gone(_) => *ended += 1,
            Event::Judged { verdict, .. } => *ended += usize::from(verdict.is_err()),
        }
    }
    let odd: Vec<_> = ends.iter().filter(|(_, ends)| **ends != 1).collect();
    assert!(odd.is_empty(), "{odd:?}");
    let mut lost = 0;
    for (number, port) in lab.ports.iter().enumerate() {
        for limit in [Limit::Flow, Limit::BandwidthIn, Limit::BandwidthOut, Limit::Packets] {
            let held = held(&lab, number, limit);
            let of = |all: &BTreeMap<(PortId, u8), u64>| {
                all.get(&(*port, limit as u8)).copied().unwrap_or_default()
            };
            assert_eq!((of(&waited), of(&dropped)), (held.queued, held.dropped), "{limit:?}");
            lost += if number == 0 { held.dropped } else { 0 };
        }
    }
    assert_eq!(ends.len() as u64, sent + (sent - lost), "on both interfaces");
    assert!(!lab.card.take_trace(id, 1, 1).unwrap().is_over);
}

#[test]
fn a_trace_ends_after_its_packets_and_its_bounds_hold() {
    let mut lab = lab();
    let syn = tcp((0, 1), (5, 443), 1400);
    let id = lab.card.begin_trace(Filter::default(), 3, 0).unwrap();
    for _ in 0..4 {
        send(&mut lab, Instant::ZERO, 0, &syn);
    }
    let taken = lab.card.take_trace(id, 5, usize::MAX).unwrap();
    assert_eq!((taken.records.len(), taken.is_over), (5, false));
    let taken = lab.card.take_trace(id, usize::MAX, usize::MAX).unwrap();
    assert_eq!((taken.records.len(), taken.lost, taken.is_over), (4, 0, true));
    lab.card.end_trace(id);
    assert!(lab.card.take_trace(id, 1, 1).is_none());

    for (head, most) in [(0, RECORDS_MAX / 3 + 2), (1500, BYTES_MAX / 1400 + 2)] {
        let mut lab = self::lab();
        let id = lab.card.begin_trace(Filter::default(), ALL, head).unwrap();
        // The rate is so low that no limit delays a packet.
        for number in 0..most as u64 {
            send(&mut lab, Instant::ZERO + Duration::from_millis(number), 0, &syn);
        }
        // The first call takes a part of the records, limited by its bytes; the second takes the
        // rest.
        let part_bytes = if head > 0 { 2000 } else { usize::MAX };
        let mut taken = lab.card.take_trace(id, usize::MAX, part_bytes).unwrap();
        if head > 0 {
            assert_eq!(taken.records.len(), 3, "one packet's bytes, and its records");
            let rest = lab.card.take_trace(id, usize::MAX, usize::MAX).unwrap();
            assert_eq!(rest.lost, 0, "they were reported before");
            taken.records.extend(rest.records);
        }
        let bytes = |r: &Record| if let Event::Arrived(a) = &r.event { a.head.len() } else { 0 };
        assert!(taken.lost > 0 && taken.records.len() < RECORDS_MAX + 8, "{}", taken.lost);
        assert!(taken.records.iter().map(bytes).sum::<usize>() <= BYTES_MAX);
        let all = taken.records.iter().filter(|r| matches!(r.event, Event::Arrived(_))).count();
        assert_eq!(all as u64 + taken.lost, 2 * most as u64);
        // The trace continues after records were taken.
        send(&mut lab, Instant::ZERO + Duration::from_secs(100), 0, &syn);
        assert_eq!(take(&mut lab, id).len(), 6);
    }
    let begin = |lab: &mut Lab| lab.card.begin_trace(Filter::default(), 1, 0);
    let all: Vec<TraceId> = (0..TRACES_MAX).map(|_| begin(&mut lab).unwrap()).collect();
    assert_eq!(begin(&mut lab), Err(TooManyTraces));
    lab.card.end_trace(all[0]);
    assert!(begin(&mut lab).is_ok());
}

/// The rules evaluate each direction of a flow once, and never again in a million packets.
#[test]
fn a_flow_is_judged_once_and_then_carries_a_million_packets() {
    let mut lab = lab();
    let sent = [tcp((0, 1), (5, 443), 8), tcp((1, 0), (443, 5), 8)];
    let judged = |lab: &Lab| [0, 1].map(|n| lab.card.counts(lab.ports[n]).judged);
    let (mut delivered, mut now) = (0, Instant::ZERO);
    for n in 0..1_000_000_usize {
        // At this rate, no limit delays a packet.
        now += Duration::from_micros(10);
        delivered += send(&mut lab, now, n % 2, &sent[n % 2]);
        if n == 1 {
            assert_eq!(judged(&lab), [2, 2], "what it sends and what it gets, at each end");
        }
    }
    assert_eq!((delivered, judged(&lab)), (1_000_000, [2, 2]));
}
