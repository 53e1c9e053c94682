use super::*;
use crate::burst::Burst;
use proptest::prelude::*;
use srd_pcapng::{Direction, Packet, Writer};
use std::io::Write as _;

const MS: u64 = 1_000_000;

/// A UDP packet between hosts of 10.0.0.0/24 whose IP header says 1000 bytes; 60 are kept.
fn packet(from: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 3, 232, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, 9];
    bytes.extend([0, 5, 0, 6, 3, 212, 0, 0]);
    bytes.resize(60, 0);
    bytes
}

/// 40 packets in 1 ms after a second of few, as pcapng of bare IP.
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

/// The same as pcap of Ethernet, with microseconds or nanoseconds.
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
    // 20 packets of 1000 bytes a millisecond are the limit.
    let model = Model::of_rate(160_000_000, None);
    let model = model.with_tolerance(crate::model::Duration::from_millis(1));
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
    let mut files = vec![(pcapng(), Way::Out)];
    for (link, way) in [(1, Way::In), (113, Way::Out), (276, Way::Out), (0, Way::In)] {
        files.push((pcap(false, link), way));
        files.push((pcap(true, link), way));
    }
    for (n, (bytes, way)) in files.into_iter().enumerate() {
        let (bursts, outcome) = read(&bytes, &options());
        let outcome = outcome.unwrap();
        assert!(outcome.error.is_none(), "{n}: {:?}", outcome.error);
        let [burst] = bursts.as_slice() else { panic!("{n}: one burst, not {bursts:?}") };
        assert_eq!((burst.way, burst.start_ns, burst.bytes), (way, 1000 * MS, 40_000), "{n}");
        assert_eq!(burst.flows[0].flow.to_string(), "UDP 10.0.0.2:5 > 10.0.0.9:6");
        let totals = outcome.sessions[0].watch.totals(way);
        assert_eq!((totals.packets, totals.bytes), (141, 141_000), "{n}");
        assert_eq!(outcome.sessions[0].others(), 0);
    }
}

#[test]
fn packets_from_local_addresses_go_out_where_the_file_says_nothing() {
    let local = vec!["10.0.0.2/32".parse().unwrap()];
    let (bursts, _) = read(&pcap(true, 1), &Options { local, ..options() });
    assert_eq!(bursts[0].way, Way::Out);
}

#[test]
fn a_file_that_ends_early_tells_what_it_had_and_others_are_refused() {
    let whole = pcapng();
    let (bursts, outcome) = read(&whole[..whole.len() - 7], &options());
    assert_eq!(bursts.len(), 1);
    assert!(matches!(outcome.unwrap().error, Some(FileError::Cut(140))));
    for bytes in [&b""[..], b"text that is no capture file at all, and long enough to be one"] {
        assert!(matches!(read(bytes, &options()).1, Err(FileError::Unknown)));
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
    assert!(matches!(outcome.unwrap().error, Some(FileError::Interfaces)));
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A damaged file ends, and panics nowhere.
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
