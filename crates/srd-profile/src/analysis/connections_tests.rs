use super::*;
use srd_card::Direction;
use srd_card::packet::Packet;

const MS: u64 = 1_000_000;
const FIN: u8 = 1;

/// Returns the key of the TCP connection with this number, from the view of the end that opens it.
fn key(number: u32) -> Key {
    let [a, b, c, d] = number.to_be_bytes();
    let mut bytes =
        vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, a, b, c, 10, 255, 0, 2, 100, d, 0, 80];
    bytes.resize(40, 0);
    Key::of(&Packet::read(&bytes).unwrap(), &bytes, Direction::Egress, 0)
}

/// Opens a connection and, if `life_ns` is given, ends it after this time.
fn live(connections: &mut Connections, now_ns: u64, number: u32, life_ns: Option<u64>) {
    let key = key(number);
    connections.add(now_ns, &key, true, PacketKind::Tcp(SYN));
    connections.add(now_ns, &key, false, PacketKind::Tcp(SYN | ACK));
    connections.add(now_ns, &key, true, PacketKind::Tcp(ACK));
    if let Some(life_ns) = life_ns {
        connections.add(now_ns + life_ns, &key, true, PacketKind::Tcp(ACK | FIN));
        connections.add(now_ns + life_ns, &key, false, PacketKind::Tcp(ACK | FIN));
    }
}

#[test]
fn connections_that_end_take_their_places_for_a_short_time() {
    let mut connections = Connections::new(0);
    for n in 0..1000_u32 {
        live(&mut connections, u64::from(n) * 100 * MS, n, Some(20 * MS));
    }
    let seen = connections.seen(100_000 * MS);
    assert_eq!((seen.began, seen.ended, seen.silent), (1000, 1000, 0));
    let (half, most) = seen.life_ms.unwrap();
    assert!((19.9..20.1).contains(&half) && (19.9..20.1).contains(&most), "{half} {most}");
    assert_eq!(seen.rates[1].p50, 10.0);
    for entries in &seen.entries {
        // Ten connections per second, each with an entry for 10 s after its end.
        assert!((100..=130).contains(&entries.peak), "{entries:?}");
    }
}

#[test]
fn silent_connections_add_up_over_long_idle_times() {
    let mut connections = Connections::new(0);
    for n in 0..1200_u32 {
        live(&mut connections, u64::from(n) * 100 * MS, n, None);
    }
    let seen = connections.seen(120_000 * MS);
    assert_eq!(seen.silent, 601, "all that began a minute before the end, or earlier");
    let [default, v6, shortest] = &seen.entries;
    assert_eq!((default.peak, default.last), (1200, 1200));
    // Ten connections per second become silent. With timeouts of 350 s and of five days, this is
    // the number of entries in the long term.
    assert!((3_900..=4_200).contains(&v6.settled.unwrap()), "{v6:?}");
    assert!((4_300_000..=4_400_000).contains(&default.settled.unwrap()), "{default:?}");
    assert!((600..=620).contains(&shortest.peak), "{shortest:?}");
    assert_eq!(shortest.settled, None);
}

#[test]
fn beyond_its_bound_a_sample_stands_for_all() {
    let mut connections = Connections::new(0);
    for n in 0..600_000_u32 {
        live(&mut connections, u64::from(n) * 1000, n, None);
        assert!(connections.known.tracked() <= ENTRIES_MAX);
    }
    let seen = connections.seen(600 * MS);
    assert!(seen.weight >= 8, "{}", seen.weight);
    for count in [seen.began, seen.entries[0].peak, seen.entries[2].peak] {
        assert!((580_000..620_000).contains(&count), "{count}");
    }
}

#[test]
fn what_was_open_before_is_no_new_connection() {
    let mut connections = Connections::new(0);
    connections.add(0, &key(1), false, PacketKind::Tcp(ACK));
    connections.add(MS, &key(1), true, PacketKind::Tcp(ACK));
    connections.add(2 * MS, &key(2), false, PacketKind::Tcp(SYN));
    let seen = connections.seen(1000 * MS);
    assert_eq!((seen.began, seen.entries[0].peak), (1, 2));
}
