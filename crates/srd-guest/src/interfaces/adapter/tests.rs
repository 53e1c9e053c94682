use super::*;
use crate::control::protocol::DeviceChange;
use srd_card::profile::InstanceType;
use srd_proto::time::Duration;

/// Returns a UDP packet between two ports, with `payload` bytes of payload.
fn udp(from: u16, to: u16, payload: u16) -> Vec<u8> {
    let length = 28 + payload;
    let mut frame = vec![0; OFFLOAD_BYTES];
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.extend((8 + payload).to_be_bytes());
    frame.resize(OFFLOAD_BYTES + usize::from(length), 0);
    frame
}

fn adapter(kind: &str, change: DeviceChange) -> Adapter {
    let kind = InstanceType::find(kind).unwrap();
    let facts = DeviceLimits { kind: &kind, eni: 0, queues_of_others: 0 };
    let settings = DeviceSettings::of(&kind);
    let (settings, steering) = settings.changed(&steering_of(&kind), &change, &facts).unwrap();
    Adapter::new(Instant::ZERO, settings, Arc::new(steering), 0).unwrap()
}

fn received(adapter: &Adapter) -> Vec<u64> {
    adapter.counts().map(|queue| queue.rx_packets).collect()
}

#[test]
fn flows_spread_over_queues_and_each_flow_stays_in_one() {
    let mut adapter = adapter("c7i.24xlarge", DeviceChange::default());
    for from in 0..800 {
        let Arrived::Now(queue, _) = adapter.arrive(Instant::ZERO, udp(from, 80, 10)) else {
            panic!("nothing is held back")
        };
        let again = adapter.arrive(Instant::ZERO, udp(from, 80, 10));
        assert!(matches!(again, Arrived::Now(other, _) if other == queue));
    }
    let received = received(&adapter);
    assert_eq!((received.len(), received.iter().sum::<u64>()), (8, 1600));
    assert!(received.iter().all(|packets| *packets > 100), "{received:?}");
}

#[test]
fn rules_come_before_the_hash() {
    let rules = ["udp4 dst-port 22 action 1 loc 0", "udp4 action 3 loc 2"];
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let mut adapter = adapter("c8g.8xlarge", DeviceChange { rules, ..DeviceChange::default() });
    for from in 0..100 {
        adapter.arrive(Instant::ZERO, udp(from, 22, 10));
        adapter.arrive(Instant::ZERO, udp(from, 80, 10));
    }
    assert_eq!(received(&adapter), [0, 100, 0, 100, 0, 0, 0, 0]);
}

#[test]
fn packets_wait_for_their_interrupt_and_a_full_ring_drops() {
    let change = DeviceChange {
        queues: Some(1),
        rx_ring: Some(256),
        rx_usecs: Some(20),
        ..DeviceChange::default()
    };
    let mut adapter = adapter("c7i.large", change);
    let at = |us| Instant::ZERO + Duration::from_micros(us);
    assert_eq!(adapter.arrive(at(1), udp(1, 2, 10)), Arrived::Held);
    assert_eq!(adapter.poll_timeout(), Some(at(21)));
    assert!(adapter.due(at(20)).is_empty());
    assert_eq!(adapter.due(at(21)), [(0, udp(1, 2, 10))]);
    assert_eq!(adapter.poll_timeout(), None);
    let arrived = (0..300).filter(|_| adapter.arrive(at(30), udp(1, 2, 10)) == Arrived::Held);
    assert_eq!(arrived.count(), 256);
    let counts = adapter.counts().next().unwrap();
    assert_eq!((counts.rx_overruns, counts.rx_packets), (44, 257));
    // When moderation ends, all held packets go to the instance, and the counters stay.
    let settings = DeviceSettings { rx_usecs: 0, ..adapter.settings.clone() };
    let steering = Arc::clone(&adapter.steering);
    assert_eq!(adapter.set(at(31), settings, steering).unwrap().len(), 256);
    assert!(matches!(adapter.arrive(at(32), udp(1, 2, 10)), Arrived::Now(0, _)));
    assert_eq!(adapter.counts().next().unwrap().rx_packets, 258);
}

#[test]
fn adaptive_moderation_lets_go_after_256_packets() {
    let change = DeviceChange { adaptive_rx: Some(true), ..DeviceChange::default() };
    let mut adapter = adapter("c7i.large", change);
    let at = Instant::ZERO + Duration::from_micros(3);
    for _ in 0..256 {
        assert_eq!(adapter.arrive(at, udp(1, 2, 10)), Arrived::Held);
    }
    assert_eq!(adapter.poll_timeout(), Some(at), "not after eight microseconds");
    assert_eq!(adapter.due(at).len(), 256);
}

#[test]
fn a_super_packet_counts_as_what_it_stands_for() {
    let mut adapter = adapter("c7i.large", DeviceChange::default());
    let mut frame = udp(1, 2, 2500);
    // UDP segmentation offload, with a thousand bytes for each packet.
    frame[1] = 5;
    frame[4..6].copy_from_slice(&1000_u16.to_le_bytes());
    adapter.sent(1, &frame);
    adapter.sent(7, &frame);
    adapter.arrive(Instant::ZERO, frame);
    let counts: Vec<QueueCounts> = adapter.counts().collect();
    assert_eq!((counts[1].tx_packets, counts[1].tx_bytes), (3, 2528));
    assert_eq!(counts.iter().map(|queue| queue.rx_packets).sum::<u64>(), 3);
    // An unreadable frame counts as one packet of the first queue.
    let before = adapter.counts().next().unwrap().rx_packets;
    adapter.arrive(Instant::ZERO, vec![1, 2]);
    assert_eq!(adapter.counts().next().unwrap().rx_packets, before + 1);
}
