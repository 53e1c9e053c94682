use super::*;

const US: u64 = 1000;
/// Time, in nanoseconds, at which all packets have left.
const LATER: u64 = 1_000_000_000;

/// Returns a UDP packet from this source port that contains a number.
fn packet(source_port: u16, number: u32) -> Vec<u8> {
    let mut packet = vec![0; 32];
    packet[0] = 0x45;
    packet[9] = 17;
    packet[20..22].copy_from_slice(&source_port.to_be_bytes());
    packet[28..].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[28..].try_into().unwrap())
}

fn wire(impairment: &Impairment) -> Wire {
    impairment.validate().unwrap();
    Wire::new(impairment, impairment.seed)
}

/// Takes each packet at its due time. Returns due times and numbers of the packets.
fn drain(wire: &mut Wire) -> Vec<(u64, u32)> {
    let mut left = Vec::new();
    while let Some(due_ns) = wire.next_due_ns() {
        assert!(due_ns == 0 || wire.take_due(due_ns - 1).is_none(), "before it is due");
        left.push((due_ns, number(&wire.take_due(due_ns).unwrap())));
    }
    left
}

#[test]
fn paths_delay_in_equal_steps_from_shortest_to_longest() {
    let impairment = Impairment {
        paths: 4,
        delay_min_ns: 100 * US,
        delay_max_ns: 400 * US,
        ..Impairment::default()
    };
    let mut wire = wire(&impairment);
    for port in 0..4 {
        wire.accept(0, packet(port, port.into()));
    }
    let left: Vec<u64> = drain(&mut wire).into_iter().map(|(ns, _)| ns / US).collect();
    assert_eq!(left, [100, 200, 300, 400]);
    assert_eq!(wire.carried().paths_used, 4);
}

#[test]
fn one_path_has_the_shortest_delay() {
    let mut wire = wire(&Impairment { paths: 1, ..Impairment::default() });
    wire.accept(7, packet(1, 1));
    assert_eq!(drain(&mut wire), [(7 + 50 * US, 1)]);
}

#[test]
fn packets_of_a_path_keep_their_order_without_jitter() {
    let mut wire = wire(&Impairment::default());
    for n in 0..100 {
        wire.accept(u64::from(n / 10), packet(5, n));
    }
    let order: Vec<u32> = drain(&mut wire).into_iter().map(|(_, n)| n).collect();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
    assert_eq!(wire.carried().overtaken, 0);
}

#[test]
fn packets_of_different_paths_and_of_one_with_jitter_overtake() {
    let across = Impairment { loss_ppm: 0, ..Impairment::default() };
    let within = Impairment { paths: 1, jitter_ns: 100 * US, ..Impairment::default() };
    for impairment in [across, within] {
        let mut wire = wire(&impairment);
        for n in 0..640 {
            wire.accept(n * US, packet(u16::try_from(n).unwrap(), u32::try_from(n).unwrap()));
        }
        let left = drain(&mut wire);
        let mut newest = 0;
        let overtaken = left.iter().filter(|(_, n)| {
            newest = newest.max(*n);
            *n < newest
        });
        let overtaken = overtaken.count() as u64;
        assert!(overtaken > 300, "{overtaken}");
        assert_eq!(wire.carried().overtaken, overtaken);
    }
}

#[test]
fn jitter_stays_within_its_bound_and_uses_it() {
    let mut wire =
        wire(&Impairment { delay_max_ns: 50 * US, jitter_ns: 10 * US, ..Impairment::default() });
    for n in 0..1000 {
        wire.accept(0, packet(1, n));
    }
    let left = drain(&mut wire);
    let (first, last) = (left[0].0, left[999].0);
    assert!((50 * US..51 * US).contains(&first), "{first}");
    assert!((59 * US..=60 * US).contains(&last), "{last}");
}

#[test]
fn half_a_percent_is_lost_if_asked_for_and_nothing_or_all() {
    let lost = |loss_ppm| {
        let mut wire = wire(&Impairment { loss_ppm, ..Impairment::default() });
        for n in 0..100_000 {
            wire.accept(0, packet(1, n));
            wire.take_due(LATER);
        }
        wire.carried().lost
    };
    assert_eq!(lost(0), 0);
    assert!((430..570).contains(&lost(5000)), "{}", lost(5000));
    assert_eq!(lost(1_000_000), 100_000);
}

#[test]
fn a_seed_repeats_and_another_does_not() {
    let run = |seed| {
        let impairment =
            Impairment { loss_ppm: 100_000, jitter_ns: 50 * US, seed, ..Impairment::default() };
        let mut wire = wire(&impairment);
        for n in 0..500 {
            wire.accept(u64::from(n) * US, packet(u16::try_from(n % 50).unwrap(), n));
        }
        drain(&mut wire)
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn losses_are_the_same_whatever_the_delays() {
    let survivors = |impairment: Impairment| {
        let mut wire = wire(&Impairment { loss_ppm: 200_000, ..impairment });
        for n in 0..500 {
            wire.accept(0, packet(1, n));
        }
        let mut left: Vec<u32> = drain(&mut wire).into_iter().map(|(_, n)| n).collect();
        left.sort_unstable();
        left
    };
    let slow = Impairment { jitter_ns: 900 * US, paths: 2, ..Impairment::default() };
    assert_eq!(survivors(Impairment::default()), survivors(slow));
}

#[test]
fn packets_beyond_the_queue_are_dropped_and_counted_until_there_is_room() {
    let mut wire = wire(&Impairment { queue_packets_max: 10, ..Impairment::default() });
    for n in 0..15 {
        wire.accept(0, packet(1, n));
    }
    let carried = wire.carried();
    assert_eq!((carried.overflowed, carried.under_way, carried.under_way_most), (5, 10, 10));
    assert_eq!(number(&wire.take_due(LATER).unwrap()), 0);
    wire.accept(0, packet(1, 15));
    assert_eq!(wire.carried().overflowed, 5);
    let rest: Vec<u32> = drain(&mut wire).into_iter().map(|(_, n)| n).collect();
    assert_eq!(rest, [1, 2, 3, 4, 5, 6, 7, 8, 9, 15]);
}

#[test]
fn every_packet_is_accounted_for() {
    let impairment =
        Impairment { loss_ppm: 300_000, queue_packets_max: 100, ..Impairment::default() };
    let mut wire = wire(&impairment);
    let mut random = Random::new(9);
    for n in 0..5000u32 {
        let now_ns = u64::from(n) * 2 * US;
        wire.accept(now_ns, packet(u16::try_from(n % 64).unwrap(), n));
        while wire.take_due(now_ns).is_some() {
            if random.below(10) == 0 {
                wire.refused();
            }
        }
    }
    let all = wire.carried();
    let sum = all.delivered + all.lost + all.overflowed + all.refused + all.under_way;
    assert_eq!((all.packets, all.bytes), (5000, 5000 * 32));
    assert_eq!(sum, all.packets);
    for some in [all.delivered, all.lost, all.overflowed, all.refused, all.under_way] {
        assert!(some > 0, "{all:?}");
    }
}

#[test]
fn lateness_is_that_of_the_caller() {
    let mut wire = wire(&Impairment { paths: 1, ..Impairment::default() });
    wire.accept(0, packet(1, 1));
    wire.accept(0, packet(1, 2));
    wire.take_due(52 * US).unwrap();
    wire.take_due(60 * US).unwrap();
    let carried = wire.carried();
    assert_eq!((carried.late_us_mean, carried.late_us_max), (6.0, 10.0));
}
