use super::*;
use crate::sources::read::HEADERS_BYTES;

const MS: u64 = 1_000_000;

fn push(keeper: &mut Keeper, time_ns: u64, size: usize, open: Option<u64>) {
    let mut bytes = vec![0; size];
    bytes[0] = 0x45;
    let raw = Raw {
        time: Instant::from_nanos(time_ns),
        way: PacketDirection::Out,
        ethertype: Some(0x0800),
        length: 1500,
        segment_bytes: None,
        mtu_bytes: None,
        bytes: &bytes,
    };
    keeper.push(&raw, open.map(Instant::from_nanos));
}

fn burst(start_ns: u64, length_ns: u64) -> Burst {
    Burst {
        interface: "../eth0".into(),
        way: PacketDirection::Out,
        start_ns,
        length_ns,
        continues: false,
        bytes: 0,
        packets: 0,
        peak_bps: 0,
        mean_bps: 0,
        second_bps: 0,
        minute_bps: 0,
        minute_seen_ns: 0,
        limit_bps: 0,
        queued: 0,
        dropped: 0,
        limits: Vec::new(),
        flows: Vec::new(),
        flows_counted: 0,
        flows_error_bytes: 0,
        whales: Vec::new(),
        allowances: Vec::new(),
        missed: 0,
        shape: Vec::new(),
    }
}

#[test]
fn memory_is_bounded_and_the_beginning_of_a_burst_stays() {
    let mut keeper = Keeper::new(100 * (100 + OVERHEAD_BYTES));
    for n in 0..1000 {
        push(&mut keeper, n * MS, 100, None);
        assert!(keeper.entries.len() <= 100 && keeper.bytes <= keeper.bytes_max);
    }
    // A burst is under way since 1000 ms. Packets before it are removed, except those of its last 5
    // ms.
    for n in 1000..1200 {
        push(&mut keeper, n * MS, 100, Some(1000 * MS));
    }
    let kept = keeper.of(&burst(1000 * MS, 200 * MS));
    assert_eq!(kept.packets[0].time, Instant::from_nanos(995 * MS));
    assert_eq!(kept.count(), (100, 105));
    assert_eq!(keeper.of(&burst(1000 * MS, MS)).count(), (6, 0), "the missing count once");
}

#[test]
fn a_file_has_the_packets_and_its_name_leads_nowhere_else() {
    let mut keeper = Keeper::new(1 << 20);
    for n in 0..20 {
        push(&mut keeper, n * MS, 60, None);
    }
    let burst = burst(7 * MS, 5 * MS);
    let kept = keeper.of(&burst);
    let directory = tempfile::tempdir().unwrap();
    let file = kept.save(&burst, directory.path()).unwrap();
    assert_eq!(file, directory.path().join("___eth0-out-0.007000000.pcapng"));
    let written = std::fs::read(&file).unwrap();
    let times = written.windows(4).filter(|word| *word == [6, 0, 0, 0]).count();
    assert!(times >= 10 && written.len() > 10 * 60, "{times}");
    assert_eq!(kept.count(), (10, 0));
    assert!(kept.save(&burst, Path::new("/nonexistent/there")).is_err());
    assert!(u32::try_from(60).unwrap() < HEADERS_BYTES);
}

#[test]
fn regression_a_long_name_of_an_interface_fits_into_a_file_name() {
    let directory = tempfile::tempdir().unwrap();
    let burst = Burst { interface: "e".repeat(1000), ..burst(7 * MS, MS) };
    let file = Keeper::new(1 << 20).of(&burst).save(&burst, directory.path()).unwrap();
    assert!(file.to_str().unwrap().ends_with("e-out-0.007000000.pcapng"), "{}", file.display());
}

#[test]
fn regression_nothing_is_written_where_a_link_of_others_leads() {
    let directory = tempfile::tempdir().unwrap();
    let theirs = directory.path().join("theirs");
    std::fs::write(&theirs, "important").unwrap();
    let kept = Keeper::new(1 << 20).of(&burst(7 * MS, MS));
    let place = directory.path().join("___eth0-out-0.007000000.pcapng");
    for target in [&theirs, &directory.path().join("not there yet")] {
        std::os::unix::fs::symlink(target, &place).unwrap();
        assert_eq!(kept.save(&burst(7 * MS, MS), directory.path()).unwrap(), place);
        assert!(std::fs::symlink_metadata(&place).unwrap().is_file());
        std::fs::remove_file(&place).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "important");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    // An existing file of the same burst is replaced.
    for _ in 0..2 {
        kept.save(&burst(7 * MS, MS), directory.path()).unwrap();
    }
}
