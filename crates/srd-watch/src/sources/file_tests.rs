use super::*;
use crate::analysis::burst::Burst;
use proptest::prelude::*;
use srd_pcapng::{Direction, Packet, Writer};
use std::io::Write as _;

use crate::sources::link::LAYERS_MAX;

const MS: u64 = 1_000_000;

/// Returns the first 60 bytes of a UDP packet between hosts of 10.0.0.0/24. Its IP header states
/// 1000 bytes.
fn packet(from: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 3, 232, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, 9];
    bytes.extend([0, 5, 0, 6, 3, 212, 0, 0]);
    bytes.resize(60, 0);
    bytes
}

/// Returns a pcapng file of IP packets without link headers: one second with few packets, then 40
/// packets in 1 ms.
fn pcapng() -> Vec<u8> {
    let mut writer = Writer::begin("test");
    let interface = writer.interface("eth7", 60);
    let mut put = |time_ns: u64, from: u8| {
        let (direction, length, bytes) = (Direction::Out, 1000, &packet(from)[..]);
        writer.packet(&Packet { interface, direction, time_ns, length, bytes, comment: "" });
    };
    (0..100).for_each(|n| put(n * 10 * MS, 1));
    (0..40).for_each(|n| put(1_000 * MS + n * 20_000, 2));
    put(2_000 * MS, 1);
    writer.take()
}

/// Returns a pcap file with the link type `link`. Its time stamps are in nanoseconds if `nano` is
/// set, otherwise in microseconds.
fn pcap(nano: bool, link: u32) -> Vec<u8> {
    let magic: u32 = if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut bytes = magic.to_le_bytes().to_vec();
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    bytes.extend(link.to_le_bytes());
    let mut put = |time_ns: u64, from: u8| {
        let head: &[u8] = match link {
            1 => &[2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0],
            113 => &[0, 4, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0],
            276 => &[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 4, 6, 0, 0, 0, 0, 0, 0, 0, 0],
            _ => &[2, 0, 0, 0],
        };
        let frame = [head, &packet(from)].concat();
        let (seconds, rest) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        let length = 1000 + head.len() as u64;
        let rest = if nano { rest } else { rest / 1000 };
        for word in [seconds, rest, frame.len() as u64, length] {
            bytes.extend(u32::try_from(word).unwrap().to_le_bytes());
        }
        bytes.extend(frame);
    };
    (0..100).for_each(|n| put(n * 10 * MS, 1));
    (0..40).for_each(|n| put(1_000 * MS + n * 20_000, 2));
    put(2_000 * MS, 1);
    bytes
}

fn options() -> Options {
    // The limit is 20 packets of 1000 bytes per millisecond.
    let model = Model::of_rate(160_000_000, None);
    let model = model.with_tolerance(crate::analysis::model::Duration::from_millis(1));
    let (local, mtu_bytes, kept_bytes) = (Vec::new(), None, 1 << 20);
    Options { model, settings: Settings::default(), local, mtu_bytes, kept_bytes }
}

fn read(bytes: &[u8], options: &Options) -> (Vec<Burst>, Result<Outcome, FileError>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut bursts = Vec::new();
    let outcome = run(file.path(), options, &|| false, &mut |report| {
        if let Report::Ended(burst, _) = report {
            bursts.push(*burst);
        }
    });
    (bursts, outcome)
}

#[test]
fn both_formats_and_every_link_type_tell_the_same() {
    let mut files = vec![(pcapng(), PacketDirection::Out)];
    for (link, way) in [
        (1, PacketDirection::In),
        (113, PacketDirection::Out),
        (276, PacketDirection::Out),
        (0, PacketDirection::In),
    ] {
        files.push((pcap(false, link), way));
        files.push((pcap(true, link), way));
    }
    for (n, (bytes, way)) in files.into_iter().enumerate() {
        let (bursts, outcome) = read(&bytes, &options());
        let outcome = outcome.unwrap();
        assert!(outcome.end.error.is_none(), "{n}: {:?}", outcome.end.error);
        let [burst] = bursts.as_slice() else { panic!("{n}: one burst, not {bursts:?}") };
        assert_eq!((burst.way, burst.start_ns, burst.bytes), (way, 1000 * MS, 40_000), "{n}");
        assert_eq!(burst.flows[0].flow.to_string(), "UDP 10.0.0.2:5 > 10.0.0.9:6");
        let totals = outcome.sessions[0].watch.totals(way);
        assert_eq!((totals.packets, totals.bytes), (141, 141_000), "{n}");
        assert_eq!((outcome.sessions[0].others().total(), outcome.end.others.total()), (0, 0));
    }
}

#[test]
fn packets_from_local_addresses_go_out_where_the_file_says_nothing() {
    let local = vec!["10.0.0.2/32".parse().unwrap()];
    let (bursts, _) = read(&pcap(true, 1), &Options { local, ..options() });
    assert_eq!(bursts[0].way, PacketDirection::Out);
}

#[test]
fn a_file_that_ends_early_tells_what_it_had_and_others_are_refused() {
    let whole = pcapng();
    let (bursts, outcome) = read(&whole[..whole.len() - 7], &options());
    assert_eq!(bursts.len(), 1);
    let cut = outcome.unwrap().end.error;
    let is_cut = |why: &ReadError| matches!(why, ReadError::Cut { .. });
    assert!(matches!(&cut, Some(FileError::Ended { packets: 140, why }) if is_cut(why)), "{cut:?}");
    let said = cut.unwrap().to_string();
    assert!(said.contains("ends within") && said.ends_with("after 140 packets"), "{said}");
    for bytes in [&b""[..], b"text that is no capture file at all, and long enough to be one"] {
        assert!(matches!(read(bytes, &options()).1, Err(FileError::Unknown(_))));
    }
    let missing = run(Path::new("/nonexistent"), &options(), &|| false, &mut |_| ());
    assert!(matches!(missing, Err(FileError::Io(_))));
}

#[test]
fn interfaces_are_bounded() {
    let mut writer = Writer::begin("test");
    for _ in 0..=INTERFACES_MAX {
        writer.interface("eth", 60);
    }
    let (_, outcome) = read(&writer.take(), &options());
    let error = outcome.unwrap().end.error;
    assert!(matches!(error, Some(FileError::Ended { packets: 0, why: ReadError::Interfaces })));
}

#[test]
fn regression_names_of_files_and_interfaces_are_short_and_plain() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a\u{1b}[31mb.pcapng");
    let mut writer = Writer::begin("test");
    let interface = writer.interface(&format!("\u{1b}[2J{}", "n".repeat(60_000)), 60);
    let (direction, bytes) = (Direction::In, &packet(1)[..]);
    writer.packet(&Packet { interface, direction, time_ns: 5, length: 60, bytes, comment: "" });
    std::fs::write(&file, writer.take()).unwrap();
    let outcome = run(&file, &options(), &|| false, &mut |_| ()).unwrap();
    let name = outcome.sessions[0].watch.name();
    let expected = format!("a\u{fffd}[31mb.pcapng:\u{fffd}[2J{}", "n".repeat(NAME_CHARS_MAX - 4));
    assert_eq!(name, expected);
}

#[test]
fn regression_a_packet_of_the_far_future_does_not_gather_all_that_follow_it() {
    let mut writer = Writer::begin("test");
    let interface = writer.interface("eth7", 60);
    let mut put = |time_ns: u64| {
        let (direction, length, bytes) = (Direction::Out, 1000, &packet(1)[..]);
        writer.packet(&Packet { interface, direction, time_ns, length, bytes, comment: "" });
    };
    put(4_000_000_000_000_000_000);
    (0..1_000).for_each(|n| put(1_000_000_000_000_000_000 + n * 10 * MS));
    let (bursts, outcome) = read(&writer.take(), &options());
    let watch = &outcome.unwrap().sessions[0].watch;
    assert_eq!((bursts.len(), watch.set_back()), (0, 1));
    assert_eq!(watch.seen_ns() / (100 * MS), 98);
}

/// Returns a pcap file of three equal packets, whose header has this link type field.
fn three(field: u32, frame: &[u8], length: u32) -> Vec<u8> {
    let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    bytes.extend(field.to_le_bytes());
    for n in 0..3 {
        let kept = u32::try_from(frame.len()).unwrap();
        [1, n, kept, length].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(frame);
    }
    bytes
}

/// Returns the numbers of packets and bytes that are read from a file, and a text about unsupported
/// packets.
fn figures(bytes: &[u8]) -> (u64, u64, String) {
    let outcome = read(bytes, &options()).1.unwrap();
    assert!(outcome.end.error.is_none(), "{:?}", outcome.end.error);
    let mut others = outcome.end.others;
    let (mut packets, mut sum) = (0, 0);
    for session in &outcome.sessions {
        others.absorb(session.others());
        packets += session.watch.packets();
        sum +=
            PacketDirection::BOTH.iter().map(|way| session.watch.totals(*way).bytes).sum::<u64>();
    }
    (packets, sum, others.to_string())
}

#[test]
fn the_link_field_of_pcap_has_the_length_of_the_check_sequence_above_the_type() {
    let frame = [&[2; 12][..], &[8, 0], &packet(1)].concat();
    for field in [1, 0x2400_0001, 0x3000_0001] {
        // A frame without a check sequence, and a frame with one, which is not part of the packet.
        for length in [1014, 1018] {
            let found = figures(&three(field, &frame, length));
            assert_eq!(found, (3, 3000, String::new()), "{field:#x} {length}");
        }
    }
}

#[test]
fn what_is_not_read_is_named_and_counted() {
    let frame = [&[2; 12][..], &[0x88, 0xe5], &[0; 60]].concat();
    for (field, frame, said) in [
        (105, &frame, "3 packets of link type 105 (IEEE802_11) are not read"),
        (1, &frame, "3 packets of EtherType 0x88e5 (MACsec) are not read"),
        (1, &[2; 12].to_vec(), "3 packets of which too few bytes were kept are not read"),
        (101, &vec![0x95; 60], "3 packets without a valid IP header are not read"),
        (101, &vec![0x45; 19], "3 packets of which too few bytes were kept are not read"),
        (1, &[0x81, 0].repeat(7 + 2 * LAYERS_MAX), "3 packets with too many headers in each other"),
    ] {
        let (packets, _, others) = figures(&three(field, frame, 80));
        assert_eq!(packets, 0);
        assert!(others.starts_with(said), "{others}");
    }
    // The file has a simple packet block, and a packet of an interface that it does not describe.
    let mut file = Writer::begin("test").take();
    for (kind, body) in [(3_u32, &[4, 0, 0, 0, 1, 2, 3, 4][..]), (6, &[0; 20])] {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        file.extend([&kind.to_le_bytes()[..], &length, body, &length].concat());
    }
    let (packets, _, others) = figures(&file);
    assert_eq!(packets, 0);
    assert!(
        others.contains("2 packets of an interface that the file does not describe"),
        "{others}"
    );
}

#[test]
fn a_file_that_is_stopped_has_what_came_before() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&pcapng()).unwrap();
    let seen = Cell::new(0);
    let stop = || seen.get() >= 7;
    let end = packets(file.path(), None, &stop, &mut |_| seen.set(seen.get() + 1)).unwrap();
    assert!(end.is_stopped && end.error.is_none());
    // All packets were read at once, before the stop.
    assert!(end.packets >= 7 && end.packets == seen.get(), "{}", end.packets);
    let end = packets(file.path(), None, &|| true, &mut |_| ()).unwrap();
    assert_eq!((end.is_stopped, end.packets), (true, 0));
    assert!(end.nothing(&end.others).contains("stopped"));
}

#[test]
fn a_super_packet_whose_header_has_the_length_of_a_segment_counts_whole() {
    // A frame of 64,000 bytes on the link, whose IP header states 1000.
    let frame = [&[2; 12][..], &[8, 0], &packet(1)].concat();
    assert_eq!(figures(&three(1, &frame, 14 + 64_000)), (3, 192_000, String::new()));
    // Padding and trailers of these lengths do not count.
    for more in [0, 1, 4, 46, 64] {
        assert_eq!(figures(&three(1, &frame, 14 + 1000 + more)).1, 3000, "{more}");
    }
    // A packet that is shorter than its IP header states counts with its captured bytes.
    assert_eq!(figures(&three(1, &frame, 14 + 900)).1, 2700);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Reading a damaged file ends without a panic.
    #[test]
    fn damaged_files_end(
        legacy in any::<bool>(),
        changes in prop::collection::vec((0_usize..16_000, any::<u8>()), 1..20),
    ) {
        let mut bytes = if legacy { pcap(true, 1) } else { pcapng() };
        for (at, value) in changes {
            let length = bytes.len();
            bytes[at % length] = value;
        }
        let _ = read(&bytes, &options());
    }
}
