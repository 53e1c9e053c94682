use super::*;
use crate::runs::run::{Job, jobs, run, run_all};

const SMALL: &str = r#"
name = "small"
packet_bytes = 4150

[topology]
kind = "leaf-spine"
leaves = 2
spines = 4
leaf_hosts = 4

[queue]
bdp = 5.0

[[workload]]
kind = "permutation"
bytes = "256KiB"

[[workload]]
kind = "background"
src = 0
dst = 4
gbps = 10
through = "leaf0->spine2"

[[fault]]
kind = "loss"
links = "all"
probability = 0.001
at_us = 0.0

[measure]
interval_us = 10.0
flows = true
queues = ["leaf0->spine"]
loads = ["leaf0->spine"]
"#;

fn read(text: &str, sets: &[&str]) -> Result<Scenario, ScenarioError> {
    let overrides: Result<Vec<Override>, _> = sets.iter().map(|s| s.parse()).collect();
    Scenario::read("small.toml", text, Path::new("."), &overrides?)
}

fn result(text: &str, sets: &[&str], transport: Transport) -> crate::runs::run::RunResult {
    run(&Job { scenario: read(text, sets).unwrap(), transport, seed: 1 }).unwrap()
}

#[test]
fn every_transport_finishes_a_small_scenario() {
    for (transport, name) in Transport::ALL {
        let result = result(SMALL, &["fault.0.probability=0.0"], transport);
        assert_eq!(result.complaints(), Vec::<String>::new(), "{name}");
        assert_eq!((result.flows, result.transport), (8, name));
        assert!(result.over_ideal_wire.min > 0.9, "{name}: {:?}", result.over_ideal_wire);
        let series = result.series.unwrap();
        assert_eq!(series.loads.len(), 4);
        assert!(!series.flow_bytes.is_empty());
    }
}

#[test]
fn srd_survives_loss_and_checks_what_arrives() {
    let result = result(SMALL, &["srd.check_payload=true"], Transport::Srd);
    assert_eq!(result.complaints(), Vec::<String>::new());
    assert!(result.drops_by_cause["random_loss"] > 0);
    assert!(result.sent.retransmitted_packets > 0);
    let encrypted = self::result(SMALL, &["srd.encrypt=true"], Transport::Srd);
    assert_eq!(encrypted.complaints(), Vec::<String>::new());
    assert!(encrypted.ideal_wire_us > result.ideal_wire_us);
}

#[test]
fn results_do_not_depend_on_threads() {
    let scenario = read(SMALL, &[]).unwrap();
    let jobs = jobs(&scenario, &[Transport::Srd, Transport::Tcp], 1..4);
    assert_eq!(jobs.len(), 6);
    let bytes = |threads| {
        let results = run_all(&jobs, threads, &|_, _| {});
        let mut text = String::new();
        for result in results {
            let mut result = result.unwrap();
            result.cost = crate::runs::run::Cost::default();
            text += &serde_json::to_string(&result).unwrap();
            text += &serde_json::to_string(&result.flow_records).unwrap();
            text += &serde_json::to_string(&result.series).unwrap();
        }
        text
    };
    assert_eq!(bytes(1), bytes(3));
}

#[test]
fn a_short_horizon_is_reported_not_hidden() {
    let result = result(SMALL, &["horizon_us=15.0"], Transport::Srd);
    assert_eq!(result.unfinished, 8);
    let complaints = result.complaints();
    assert!(complaints[0].contains("8 of 8 flows unfinished at 15.0 us"), "{complaints:?}");
}

#[test]
fn overrides_reach_every_depth_and_say_when_they_do_not() {
    let scenario =
        read(SMALL, &["workload.0.bytes=1MiB", "srd.paths=16", "queue.bdp=2", "name=x"]).unwrap();
    assert_eq!(scenario.srd.paths, Some(16));
    assert_eq!(scenario.queue.bdp, Some(2.0));
    assert_eq!(scenario.name, "x");
    let WorkloadSpec::Permutation { bytes, .. } = scenario.workload[0] else { panic!() };
    assert_eq!(bytes, Bytes(1 << 20));
    for (set, word) in [
        ("workload.7.bytes=1", "no `7` among 2 entries"),
        ("srd.pathz=1", "pathz"),
        ("name.x=1", "is a value"),
        ("nothing", "key.path=value"),
        ("=1", "key.path=value"),
        ("srd.paths=many", "paths"),
    ] {
        let error = read(SMALL, &[set]).unwrap_err();
        assert!(error.0.contains(word), "{set}: {error}");
    }
}

#[test]
fn errors_name_file_place_and_key() {
    let refuse = |from: &str, to: &str, word: &str| {
        let text = SMALL.replace(from, to);
        assert_ne!(text, SMALL, "`{from}` is in the text");
        let scenario = read(&text, &[]);
        let build = |s: Scenario| {
            s.build(Transport::Srd, 1)?;
            s.build(Transport::Tcp, 1)?;
            s.build(Transport::Roce, 1).map(|_| ())
        };
        let error = scenario.and_then(build).unwrap_err();
        assert!(error.0.contains(word), "{error}");
    };
    refuse("packet_bytes = 4150", "packet_byte = 4150", "line 3");
    refuse("packet_bytes = 4150", "packet_bytes = 4", "at least 300");
    refuse("kind = \"leaf-spine\"", "kind = \"mesh\"", "unknown variant `mesh`");
    refuse("[queue]", "[roce]\ngain = 2.0\n[queue]", "gain");
    refuse("[queue]", "[roce]\nmark_bytes = [9, 8]\n[queue]", "marks need");
    refuse("[queue]", "[roce]\nxoff_bytes = 5\n[queue]", "XOFF must hold");
    refuse("bdp = 5.0", "bdp = 5.0\ntrim = true", "do not pause");
    refuse("[queue]", "[tcp]\nwrite_bytes = 1\n[queue]", "write_gap_us");
    refuse("bytes = \"256KiB\"", "bytes = \"256 K\"", "no number of bytes");
    refuse("spines = 4", "spines = 0", "up radix");
    refuse("leaf0->spine2", "leaf0->spine9", "workload.1");
    refuse("links = \"all\"", "links = \"leaf9\"", "fault 0: there is no leaf9");
    refuse("bdp = 5.0", "bdp = 5.0\nbytes = 5", "exclude");
    refuse("bdp = 5.0", "bytes = 4149", "holds 4149 bytes, which is less than one packet of 4150");
    refuse("leaf_hosts = 4", "leaf_hosts = 4\ngbps = 0.000001", "0.00001 to 100000");
    refuse("gbps = 10\n", "gbps = 1e9\n", "0.00001 to 100000");
    refuse("gbps = 10\n", "gbps = 10\npacket_bytes = 1\n", "packets of 64 bytes or more");
    refuse("gbps = 10\n", "gbps = 10\nstart_us = 9.0\nstop_us = 8.0\n", "ends before it begins");
    refuse("interval_us = 10.0", "interval_us = 0.0", "interval_us");
    refuse("[queue]", "[srd]\npaths = 999\n[queue]", "paths");
    assert!(Scenario::open(Path::new("no-such.toml"), &[]).unwrap_err().0.contains("no-such"));
    assert!(Transport::find("quic").unwrap_err().0.contains("srd-blind"));
}

/// In an earlier version, a negative time counted as 0, and a time or speed beyond the range of
/// integers as the largest one.
#[test]
fn regression_times_and_speeds_of_transports_are_in_range() {
    for (set, word) in [
        ("tcp.rto_min_us=-200.0", "`tcp.rto_min_us` must be between 0 and"),
        ("tcp.ack_delay_us=-1", "`tcp.ack_delay_us` must be between 0 and"),
        ("srd.ack_delay_us=nan", "`srd.ack_delay_us` must be between 0 and"),
        ("srd.link_gbps=-100.0", "`srd.link_gbps` must be between 0.00001 and 100000"),
        ("roce.additive_mbps=-40.0", "`roce.additive_mbps` must be between 0 and"),
        ("roce.timeout_us=inf", "`roce.timeout_us` must be between 0 and"),
        ("card.order_wait_us=1e30", "`card.order_wait_us` must be between 0 and"),
    ] {
        let error = read(SMALL, &[set]).unwrap_err();
        assert!(error.0.contains(word), "{set}: {error}");
    }
    read(SMALL, &["srd.link_gbps=400", "tcp.ack_delay_us=0", "roce.hyper_mbps=2e5"]).unwrap();
}

/// In an earlier version, the product of speed and round trip overflowed.
#[test]
fn regression_long_round_trips_have_a_window() {
    let sets = ["topology.latency_ns=1000000000", "topology.gbps=100000.0", "queue.bdp=0.5"];
    read(SMALL, &sets).unwrap().build(Transport::Blast, 1).unwrap();
}

/// In an earlier version, a host that sent to more than 16,384 others ended the program.
#[test]
fn regression_every_host_may_be_a_peer() {
    let sets = ["topology.leaves=129", "topology.leaf_hosts=128", "topology.spines=1"];
    let scenario = read(SMALL, &sets).unwrap();
    let topology = scenario.topology(1).unwrap();
    let config = scenario.srd.node(Transport::Srd, &topology, 4150, 1).unwrap().endpoint;
    assert!(config.peers_max >= 129 * 128, "{}", config.peers_max);
}

/// In an earlier version, the window overflowed with the first acknowledgement.
#[test]
fn regression_an_initial_window_is_bounded() {
    let build = |segments: &str| {
        let set = format!("tcp.window_initial_segments={segments}");
        read(SMALL, &[&set]).unwrap().build(Transport::Tcp, 1).err().map(|error| error.0)
    };
    assert!(build("4294967295").unwrap().contains("initial window 1 to 1000000 segments"));
    assert_eq!(build("1000000"), None);
    let set = "tcp.window_initial_segments=1000000";
    assert_eq!(result(SMALL, &[set], Transport::Tcp).unfinished, 0);
}

/// In an earlier version, the sum of two sizes overflowed while an error was described.
#[test]
fn regression_huge_headers_are_refused() {
    let sets = ["tcp.header_bytes=4294967295", "tcp.frame_bytes=12"];
    let error = read(SMALL, &sets).unwrap().build(Transport::Tcp, 1).err().unwrap();
    assert!(error.0.contains("no room beside 4294967295"), "{error}");
}
