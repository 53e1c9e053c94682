//! Tests of the named experiments: every scenario file can be parsed, and small versions run.

#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use srd_sim::report;
use srd_sim::run::{Cost, Job, RunResult, jobs, run, run_all};
use srd_sim::scenario::{Override, Scenario, Transport};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn open(name: &str, sets: &[&str]) -> Scenario {
    let overrides: Vec<Override> = sets.iter().map(|s| s.parse().unwrap()).collect();
    let path = directory().join(format!("{name}.toml"));
    Scenario::open(&path, &overrides).unwrap()
}

pub(crate) fn result(name: &str, sets: &[&str], transport: Transport) -> RunResult {
    let scenario = open(name, sets);
    let seed = scenario.seed;
    run(&Job { scenario, transport, seed }).unwrap()
}

fn names() -> Vec<String> {
    let files = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
    let toml = files.filter(|path| path.extension().is_some_and(|e| e == "toml"));
    let mut names: Vec<_> =
        toml.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_scenario_is_understood() {
    let names = names();
    assert!(names.len() >= 18, "{names:?}");
    for name in &names {
        let scenario = open(name, &[]);
        assert_eq!(&scenario.name, name);
        assert!(!scenario.description.is_empty(), "{name}");
        assert!(scenario.transports.contains(&Transport::Srd), "{name}");
        let once: BTreeSet<_> = scenario.transports.iter().collect();
        assert_eq!(once.len(), scenario.transports.len(), "{name}");
        // Scenarios with millions of flows are built in a small form, in other tests.
        if name != "permutation-8192" && !name.starts_with("ranks-") {
            scenario.build(Transport::Srd, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

/// Scenarios with overrides that make them small.
const SMALL: [(&str, &[&str]); 20] = [
    ("paper-a-incast", &["workload.0.bytes=64KiB"]),
    ("paper-a-48-servers", &["workload.0.bytes=64KiB"]),
    ("paper-a-1000-to-1", &["workload.0.bytes=4KiB"]),
    ("paper-c-racks", &["workload.0.bytes=64KiB"]),
    ("racks-single", &["workload.0.bytes=512KiB"]),
    ("racks-background", &["workload.0.bytes=64KiB"]),
    ("permutation-128", &["workload.0.bytes=128KiB"]),
    ("degraded-128", &["workload.0.bytes=128KiB"]),
    ("random-loss", &["workload.0.bytes=1MiB"]),
    ("random-loss-1-percent", &["workload.0.bytes=1MiB"]),
    ("all-to-all", &["workload.0.bytes=4KiB"]),
    ("all-reduce", &["workload.0.bytes=256KiB"]),
    ("poisson", &["workload.0.duration_us=100.0"]),
    ("paper-a-express", &["workload.0.bytes=64KiB"]),
    ("paper-c-express", &["workload.0.bytes=64KiB"]),
    ("permutation-express", &["workload.0.bytes=128KiB"]),
    ("ranks-all-to-all", &["workload.0.hosts=12", "workload.0.at_once=4"]),
    ("ranks-all-reduce", &["workload.0.hosts=8", "workload.0.bytes=256KiB"]),
    ("roce-incast", &["workload.0.bytes=256KiB", "workload.1.bytes=256KiB"]),
    ("roce-slow-receiver", &["workload.0.bytes=256KiB", "fault=[]"]),
];

fn assert_whole(name: &str, result: &RunResult) {
    let who = format!("{name}, {}", result.transport);
    assert_eq!(result.complaints(), Vec::<String>::new(), "{who}");
    for flow in &result.flow_records {
        assert_eq!(Some(flow.delivered_bytes), flow.bytes, "{who}: flow {} once", flow.id);
    }
    assert!(result.max_over_ideal > 0.95, "{who}: faster than possible");
}

#[test]
fn small_experiments_finish_and_deliver_every_byte_once() {
    for (name, sets) in SMALL {
        let sets: Vec<&str> = sets.iter().copied().chain(["srd.check_payload=true"]).collect();
        let result = result(name, &sets, Transport::Srd);
        assert_whole(name, &result);
        assert!(result.max_over_ideal < 12.0, "{name}: {}", result.max_over_ideal);
    }
}

#[test]
fn every_transport_runs_the_experiments_that_name_it() {
    for (name, sets) in [0, 3, 11, 13, 16, 17, 18, 19].map(|n| SMALL[n]) {
        for transport in open(name, &[]).transports {
            let result = result(name, sets, transport);
            assert_whole(name, &result);
        }
    }
}

/// Most messages of the first burst are lost before any sender is notified that there are many
/// senders. Each loss is found when the queue has become empty.
#[test]
fn regression_a_lost_opening_burst_is_repaired_at_once() {
    let result = result("paper-a-48-servers", &["workload.0.bytes=64KiB"], Transport::Srd);
    assert!(result.drops > 200, "{}", result.drops);
    assert!(result.over_ideal.max < 1.2, "{}", result.over_ideal.max);
}

#[test]
fn a_path_that_is_dead_from_the_start_costs_little() {
    let dead = r#"fault=[{kind="link-down",links="agg0-core0",at_us=0.0}]"#;
    let result = result("permutation-128", &[dead], Transport::Srd);
    assert!(result.drops > 500, "{}", result.drops);
    assert!(result.over_ideal.p99 < 1.25, "{}", result.over_ideal.p99);
}

/// Compares the slowest TCP flow of a small incast with and without ENA Express cards.
#[test]
fn tcp_through_cards_keeps_to_the_ideal_of_an_incast_that_plain_tcp_misses_by_far() {
    let [through, plain] = [Transport::Express, Transport::Tcp].map(|transport| {
        result("paper-a-express", &["workload.0.bytes=512KiB"], transport).over_ideal.max
    });
    assert!(through < 1.05, "{through}");
    assert!(plain > 5.0, "{plain}");
}

/// Returns the completion times of 96 requests of 600 bytes, in ascending order. The port of their
/// receiver is full meanwhile with an incast of 48 flows.
fn requests_us(transport: Transport) -> Vec<f64> {
    let pairs = "[[20,0],[24,0],[36,0],[40,0],[52,0],[56,0],[68,0],[72,0]]";
    let at = (1..13).map(|n| n * 150);
    let requests: String = at
        .map(|us| format!(r#",{{kind="pairs",pairs={pairs},bytes=600,start_us={us}.0}}"#))
        .collect();
    let incast = "senders=[16,32,48,64],receiver=0,flows_per_sender=12,bytes=2097152";
    let workload = format!(r#"workload=[{{kind="incast",{incast}}}{requests}]"#);
    let result = result("paper-a-express", &[&workload, "tcp.rto_min_us=200000.0"], transport);
    assert_eq!(result.complaints(), Vec::<String>::new());
    let requests = result.flow_records.iter().filter(|flow| flow.bytes == Some(600));
    let mut times: Vec<f64> = requests.map(|flow| flow.fct_us.unwrap()).collect();
    times.sort_by(f64::total_cmp);
    assert_eq!(times.len(), 96);
    times
}

/// Compares the tail of small requests to a host that an incast fills, with and without ENA Express
/// cards.
#[test]
fn requests_beside_an_incast_have_a_shorter_tail_through_cards() {
    let [through, plain] = [Transport::Express, Transport::Tcp].map(requests_us);
    let tail = |times: &[f64]| (times[times.len() * 9 / 10], times[times.len() - 1]);
    println!("p90 and p100 in us: {:?} through cards, {:?} plain", tail(&through), tail(&plain));
    let ((p90, p100), plain) = (tail(&through), tail(&plain));
    assert!(p90 < 0.5 * plain.0 && p100 < 0.7 * plain.1);
}

/// Returns the completion times of the flows to other hosts than host 0, in ascending order.
fn bystanders_us(result: &RunResult) -> Vec<f64> {
    let others = result.flow_records.iter().filter(|flow| flow.dst != 0);
    let mut times: Vec<f64> = others.map(|flow| flow.fct_us.unwrap()).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Measures the time that pauses take from flows with an uncongested path, in comparison with SRD.
#[test]
fn pauses_hold_flows_that_go_elsewhere_and_srd_has_none() {
    let [srd, roce, pauses_alone] = [Transport::Srd, Transport::Roce, Transport::RocePfc]
        .map(|transport| result("roce-incast", &[], transport));
    assert_eq!((srd.pauses.as_ref(), roce.drops, pauses_alone.drops), (None, 0, 0));
    let median = |result: &RunResult| bystanders_us(result)[4];
    let (with, without) = (roce.pauses.as_ref().unwrap(), pauses_alone.pauses.as_ref().unwrap());
    assert!(with.frames * 3 < without.frames, "{} {}", with.frames, without.frames);
    assert!(with.paused_us * 5.0 < without.paused_us, "{} {}", with.paused_us, without.paused_us);
    // Eight flows do not end at host 0. The other 48 flows cross the congested port of the
    // receiver.
    assert!(without.congested.contains(&"tor0->host0".to_owned()), "{:?}", without.congested);
    let (held, most) = without.victim_shares().unwrap();
    assert!(held > 0.3 && most < 1.0, "{held} {most}");
    let (ours, theirs) = (median(&srd), median(&pauses_alone));
    assert!(theirs > 3.0 * ours, "{ours} us, {theirs} us");
}

#[test]
fn one_slow_receiver_spreads_over_a_lossless_network() {
    // Returns the mean time of the flows to other hosts, divided by their mean time without the
    // slow receiver; the longest time; and the result.
    let cost = |transport| {
        let slow = result("roce-slow-receiver", &[], transport);
        let fast = result("roce-slow-receiver", &["fault=[]"], transport);
        assert_eq!(slow.complaints(), [""; 0]);
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        let (with, without) = (bystanders_us(&slow), bystanders_us(&fast));
        (mean(&with) / mean(&without), with[with.len() - 1], slow)
    };
    let (ratio, longest, srd) = cost(Transport::Srd);
    assert!(ratio < 1.05 && longest < 1_200.0, "{ratio} {longest}");
    assert!(srd.pauses.is_none());
    for transport in [Transport::Roce, Transport::RocePfc] {
        let (ratio, longest, run) = cost(transport);
        assert!(ratio > 1.4 && longest > 6_000.0, "{ratio} {longest}");
        let pauses = run.pauses.unwrap();
        assert_eq!((run.drops, &pauses.congested[..]), (0, &["leaf0->host0".to_owned()][..]));
        assert!(pauses.victims.len() >= 5, "{pauses:?}");
        let (median, most) = pauses.victim_shares().unwrap();
        assert!(median > 0.5 && most < 1.0, "{median} {most}");
        // Pauses spread from the receiver's switch over a spine and another leaf to the hosts of
        // that leaf.
        let paused = |name: &str| pauses.links.iter().any(|link| link.link.ends_with(name));
        assert!(paused("->leaf0") && paused("->spine1") && paused("->leaf2"), "{pauses:?}");
    }
}

#[test]
fn a_ring_deadlocks_with_pauses_and_finishes_with_srd() {
    for transport in [Transport::Roce, Transport::RocePfc] {
        let result = result("roce-deadlock", &[], transport);
        assert_eq!(result.unfinished, 8);
        let complaints = result.complaints();
        let told = "ring0->ring1, ring1->ring2, ring2->ring3, ring3->ring0 wait for each other";
        assert!(complaints.iter().any(|c| c.contains(told)), "{complaints:?}");
        let table = report::table(std::slice::from_ref(&result));
        assert!(table.contains("DEADLOCK at") && table.contains("paused us"), "{table}");
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["pauses"]["deadlock"]["circle"].as_array().unwrap().len(), 4);
        assert!(json["pauses"]["links"][0]["paused_us"].as_f64().unwrap() > 40_000.0);
        let directory = tempfile::tempdir().unwrap();
        let name = format!("roce-deadlock-{}-1-pauses.csv", result.transport);
        let files = report::write_all(directory.path(), &[result]).unwrap();
        let csv = files.iter().find(|file| file.ends_with(&name)).unwrap();
        assert!(std::fs::read_to_string(csv).unwrap().contains("ring0->ring1,1,"));
    }
    let result = result("roce-deadlock", &[], Transport::Srd);
    assert_whole("roce-deadlock", &result);
    assert!(result.max_over_ideal < 2.2, "{}", result.max_over_ideal);
}

#[test]
fn one_byte_writes_cost_forty_times_their_bytes_unless_nagles_rule_gathers_them() {
    let sent = |sets: &[&str]| {
        let result = result("one-byte-writes", sets, Transport::Tcp);
        assert_whole("one-byte-writes", &result);
        let acks = result.sent.ack_packets * 40;
        (result.sent.data_packets, result.wire_bytes - acks)
    };
    assert_eq!(sent(&[]), (1000, 41_000));
    let (packets, bytes) = sent(&["tcp.nagle=linux"]);
    assert!(packets < 175 && bytes == 1000 + 40 * packets, "{packets} {bytes}");
}

#[test]
fn one_byte_writers_overload_a_slow_link_unless_nagles_rule_gathers_their_bytes() {
    let [off, linux, rfc896] = ["off", "linux", "rfc896"].map(|rule| {
        let result = result("one-byte-writers", &[&format!("tcp.nagle={rule}")], Transport::Tcp);
        assert_whole("one-byte-writers", &result);
        let sent = &result.sent;
        println!(
            "{rule}: {:.0} b/s, {} lost of {}",
            result.goodput_bps, result.drops, sent.data_packets
        );
        (result.goodput_bps, result.drops as f64 / sent.data_packets as f64)
    });
    assert!(off.1 > 0.3, "{off:?}");
    for gathered in [linux, rfc896] {
        assert!(gathered.1 < 0.01 && gathered.0 > 1.6 * off.0, "{gathered:?} {off:?}");
    }
}

#[test]
fn a_second_small_write_waits_for_the_delayed_acknowledgement() {
    let times = [&[][..], &["tcp.nagle=off"], &["tcp.interactive=false"]].map(|sets| {
        let result = result("second-write", sets, Transport::Tcp);
        assert_whole("second-write", &result);
        result.fct_us.max
    });
    // The acknowledgement of the second segment is delayed as well, so the sender waits twice.
    // Without Nagle's rule both segments leave at once, and a tail probe requests their
    // acknowledgement.
    assert!((80_000.0..92_000.0).contains(&times[0]), "{times:?}");
    assert!(times[1] < 10_000.0 && times[2] < 1_000.0, "{times:?}");
}

#[test]
fn a_persistent_incast_is_fair() {
    let sets = ["horizon_us=6000.0", "measure.interval_us=2000.0"];
    let result = result("paper-b-persistent", &sets, Transport::Srd);
    let shares = result.shares.unwrap();
    assert_eq!((shares.intervals.len(), result.failed), (2, 0));
    assert!(shares.min > 0.8 && shares.max < 1.2, "{shares:?}");
    assert!(result.jain > 0.98, "{}", result.jain);
}

/// The queues have space for eleven packets, but the transport's delay target is that of sixteen
/// packets or more. Guests' TCP sends when it gets acknowledgements, so that most of the time no
/// credit limit applies.
#[test]
fn regression_short_queues_do_not_lose_what_is_sent_into_them() {
    let scenario = open("short-queues", &[]);
    let results = run_all(&jobs(&scenario, &[Transport::Express], 1..11), 2, &|_, _| {});
    let results: Vec<RunResult> = results.into_iter().map(Result::unwrap).collect();
    let mean = |of: fn(&RunResult) -> f64| results.iter().map(of).sum::<f64>() / 10.0;
    assert_eq!(results.iter().map(|result| result.failed).sum::<u64>(), 0);
    let again = mean(|result| result.retransmitted_share);
    // The share is 0.0149. It would be 0.0181 with a delay target that is longer than the queue.
    assert!(again < 0.0165, "{again}");
    // The headers of the guests' TCP reduce the goodput.
    let goodput = mean(|result| result.goodput_bps / result.ideal_goodput_bps);
    assert!(goodput > 0.95, "{goodput}");
    let jain = mean(|result| result.jain);
    assert!(jain > 0.99, "{jain}");
}

#[test]
fn a_dead_uplink_fails_nothing_and_is_used_again() {
    let result = result("uplink-death", &["horizon_us=6000.0"], Transport::Srd);
    let [recovery] = &result.recoveries[..] else { panic!("one fault") };
    assert_eq!(result.failed, 0);
    // Seven of eight links remain, and they are full. So it is random when the goodput of an
    // interval exceeds 7/8.
    assert!(recovery.from_bound.unwrap() > 0.87 && recovery.worst > 0.75, "{recovery:?}");
    assert!(recovery.used_again_us.is_some(), "{recovery:?}");
}

/// Routing takes 10 ms to a second to notice a failed link, and TCP waits for routing and for its
/// own timer. SRD recovers within one interval of recording, which is two to four orders of
/// magnitude faster.
#[test]
fn srd_is_back_long_before_routing_has_converged() {
    const INTERVAL_US: f64 = 50.0;
    let back_us = |transport, sets: &[&str]| {
        let result = result("convergence", sets, transport);
        let [recovery] = &result.recoveries[..] else { panic!("one fault") };
        recovery.back_us.unwrap_or_else(|| panic!("{sets:?}: {recovery:?}"))
    };
    let interval = format!("measure.interval_us={INTERVAL_US}");
    // If the recorded goodput shows no dip, the dip was shorter than an interval.
    let srd = back_us(Transport::Srd, &["horizon_us=40000.0", &interval]).max(INTERVAL_US);
    for (converged_us, ratio) in [(10_000.0, 100.0), (100_000.0, 500.0), (1_000_000.0, 5_000.0)] {
        let after = format!("convergence_us={converged_us}");
        // TCP doubles its timeout, so it sends again before twice this time.
        let horizon = format!("horizon_us={}", 2.0 * converged_us + 500_000.0);
        let tcp = back_us(Transport::Tcp, &[&after, &horizon, "measure.interval_us=1000.0"]);
        println!("converged after {converged_us} us: TCP {tcp:.0} us, SRD {srd:.0} us");
        assert!(tcp >= converged_us, "{tcp} us: TCP has no other way");
        assert!(tcp / srd > ratio, "{converged_us}: TCP {tcp} us, SRD {srd} us");
    }
}

/// Returns the times from the start of small messages to their arrival in microseconds, in
/// ascending order. Each of eight pairs sends 400 messages of 1 KiB, one each microsecond, so that
/// some fifteen of them are in flight.
fn arrivals_us(transport: Transport, fault: &str) -> Vec<f64> {
    let pairs: Vec<String> = (0..8).map(|n| format!("[{n},{}]", n + 16)).collect();
    let message =
        |us| format!(r#"{{kind="pairs",pairs=[{}],bytes=1024,start_us={us}.0}}"#, pairs.join(","));
    // The first message opens the contexts; its time does not count.
    let messages: Vec<String> = std::iter::once(0).chain(200..600).map(message).collect();
    let workload = format!("workload=[{}]", messages.join(","));
    let scenario = open("random-loss", &[&workload, fault]);
    let mut world = scenario.build(transport, scenario.seed).unwrap().world;
    world.run_until(5_000_000_000);
    let flows = world.flows().iter().filter(|flow| flow.started_ps > Some(0));
    let mut times: Vec<f64> = flows
        .map(|flow| (flow.received_ps.unwrap() - flow.started_ps.unwrap()) as f64 / 1e6)
        .collect();
    times.sort_by(f64::total_cmp);
    assert_eq!(times.len(), 3200);
    times
}

/// The Messaging Layer matches the messages of a peer in order, whatever their tags (G1). SRD
/// delivers each message when it arrives. The difference is the most that an order for each tag
/// alone could gain.
#[test]
fn messages_wait_for_lost_ones_of_other_tags() {
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let shares = [50, 90, 99, 100];
    let at = |times: &[f64]| shares.map(|share| times[(times.len() * share).div_ceil(100) - 1]);
    let both = |fault| {
        let both = [Transport::Srd, Transport::Efa].map(|transport| arrivals_us(transport, fault));
        for (name, times) in ["srd", "efa"].iter().zip(&both) {
            println!("{fault} {name}: mean {:.2}, {shares:?} % {:.2?} us", mean(times), at(times));
        }
        both
    };
    let [srd, efa] = both("fault=[]");
    assert!(mean(&efa) < 1.02 * mean(&srd), "without losses, order costs little");
    let [srd, efa] = both("fault.0.probability=0.001");
    // A lost packet holds up messages in a retransmission's time: some 6 % of them.
    assert!((1.02..1.2).contains(&(mean(&efa) / mean(&srd))));
    assert!(at(&efa)[1] < 1.1 * at(&srd)[1] && at(&efa)[2] > 2.0 * at(&srd)[2]);
}

/// Compares the results with and without the rules about rates (C17), which are the paper's.
#[test]
fn the_papers_rules_about_rates_gain_nothing_and_lose_no_datagram() {
    let both = |name, sets: &[&str]| {
        [false, true].map(|rules| {
            let rules = format!("srd.rate_rules={rules}");
            let sets: Vec<&str> = sets.iter().copied().chain([rules.as_str()]).collect();
            let result = result(name, &sets, Transport::Srd);
            assert_eq!(result.failed, 0, "{name} {sets:?}");
            println!("{name} {rules}: {:?}, Jain {}", result.over_ideal, result.jain);
            result
        })
    };
    let [without, with] = both("permutation-128", &[]);
    assert_ne!(without.over_ideal.p99, with.over_ideal.p99, "the rules have an effect");
    assert!(with.over_ideal.p99 > 0.99 * without.over_ideal.p99, "{:?}", with.over_ideal);
    assert!(with.over_ideal.max < 1.25, "{:?}", with.over_ideal);
    let [_, with] = both("paper-a-48-servers", &["workload.0.bytes=512KiB"]);
    assert!(with.over_ideal.max < 1.1, "{:?}", with.over_ideal);
    let [_, with] = both("paper-b-persistent", &["horizon_us=6000.0"]);
    assert!(with.jain > 0.98, "{}", with.jain);
}

#[test]
fn a_collective_waits_for_few_timers_when_a_spine_dies() {
    let scenario = open("collective-spine-death", &[]);
    let results = run_all(&jobs(&scenario, &[Transport::Srd], 1..25), 2, &|_, _| {});
    let results: Vec<RunResult> = results.into_iter().map(Result::unwrap).collect();
    assert!(results.iter().all(|result| result.failed == 0 && result.unfinished == 0));
    let mut ends_us: Vec<f64> = results.iter().map(|result| result.sim_end_us).collect();
    ends_us.sort_by(f64::total_cmp);
    // Without a fault the run takes 131 us. A timeout takes about 30 us.
    assert!(ends_us[12] < 180.0 && ends_us[23] < 230.0, "{ends_us:?}");
}

/// Returns all results of runs as text, except their cost in time and memory.
fn bytes(results: Vec<RunResult>) -> String {
    let mut text = String::new();
    let mut results = results;
    for result in &mut results {
        result.cost = Cost::default();
        text += &serde_json::to_string(result).unwrap();
        text += &report::flows_csv(&result.flow_records);
    }
    text + &report::table(&results)
}

#[test]
fn the_same_seed_gives_the_same_bytes_with_any_number_of_threads() {
    for (name, sets) in [SMALL[0], SMALL[8]] {
        let scenario = open(name, sets);
        let jobs = jobs(&scenario, &[Transport::Srd, Transport::Tcp], 1..3);
        let all = |threads| {
            let results = run_all(&jobs, threads, &|_, _| {});
            bytes(results.into_iter().map(Result::unwrap).collect())
        };
        assert_eq!(all(1), all(2), "{name}");
    }
}

#[test]
fn regression_a_scenario_that_names_a_device_without_end_is_refused() {
    let network = "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 2\nleaf_hosts = 4\n";
    let refused = |text: &str| {
        let scenario = Scenario::read("it", text, Path::new("."), &[]).unwrap();
        let jobs = srd_sim::run::jobs(&scenario, &[Transport::Srd], 1..2);
        let ended = srd_sim::run::run_all_while(&jobs, 1, &|| true, &|_, _| ());
        let error = ended.into_iter().flatten().find_map(Result::err).expect(text).0;
        assert!(error.contains("no regular file"), "{text}: {error}");
    };
    for work in [
        "kind = \"goal\"\npath = \"/dev/zero\"",
        "kind = \"matrix\"\npath = \"/dev/zero\"",
        "kind = \"chakra\"\npath = \"none\"\ngroups = \"/dev/zero\"",
        "kind = \"poisson\"\nload = 0.5\nsizes = \"/dev/zero\"\nduration_us = 1.0",
    ] {
        refused(&format!("{network}[[workload]]\n{work}\n"));
    }
    let pairs = "[[workload]]\nkind = \"permutation\"\nbytes = 1\n";
    refused(&format!("[topology]\nkind = \"file\"\npath = \"/dev/zero\"\n{pairs}"));
}

#[test]
fn regression_more_flows_than_queue_pairs_wait_for_one() {
    // The first case has more flows to one peer than the endpoint allows. The second case has more
    // flows to several peers than a host has queue pairs.
    for (peers, flows) in [(1, 5_000), (17, 4_000)] {
        let pairs: Vec<String> = (1..=peers).map(|peer| format!("[0, {peer}]")).collect();
        let text = format!(
            "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 2\nleaf_hosts = 9\n\
             [[workload]]\nkind = \"pairs\"\npairs = [{}]\nbytes = 1\nflows_per_pair = {flows}\n",
            pairs.join(", ")
        );
        let scenario = Scenario::read("it", &text, Path::new("."), &[]).unwrap();
        let result = run(&Job { scenario, transport: Transport::Srd, seed: 1 }).unwrap();
        assert_eq!(result.complaints(), [""; 0]);
        assert_eq!(result.flow_records.len(), peers * flows);
    }
}
