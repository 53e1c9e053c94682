//! Tests of the experiments in their short form. Time is simulated, so the figures do not depend on
//! the machine.

use super::*;

const QUICK: Options = Options { quick: true, seed: 1 };

fn outcome(name: &str) -> Outcome {
    find(name).unwrap().run(&QUICK).unwrap()
}

fn figure(outcome: &Outcome, name: &str) -> Figure {
    let found = outcome.figures.iter().find(|figure| figure.name.trim() == name);
    found.unwrap_or_else(|| panic!("no {name}: {outcome:?}")).clone()
}

fn here(outcome: &Outcome, name: &str) -> f64 {
    figure(outcome, name).here
}

fn met(outcome: &Outcome, names: &[&str]) {
    for name in names {
        let figure = figure(outcome, name);
        assert_eq!(figure.is_met(), Some(true), "{figure:?}");
    }
}

#[test]
fn a_flow_has_its_ceiling_and_two_have_the_instance() {
    let limits = outcome("flow-limits");
    let two = "two flows, placement group";
    met(&limits, &["one flow, outside", "one flow, MTU 1500", two, "one flow, ENA Express"]);
    met(&limits, &["c7i.24xlarge: one flow, outside", "share of packets that came by SRD"]);
    let one = here(&limits, "one flow, placement group");
    assert!(one > 1.9 * here(&limits, "one flow, outside"));
    assert!(here(&limits, two) > 1.2 * one);
    // The bandwidth of a c5.large is that of one flow, so a second flow brings nothing.
    let older = ["one flow, outside", "one flow, placement group", "two flows, placement group"]
        .map(|name| format!("c5.large: {name}"));
    met(&limits, &older.each_ref().map(String::as_str));
    assert!(here(&limits, &older[2]) < 1.02 * here(&limits, &older[1]));
    // The reference value is missed for a known cause: the limit counts headers, and a large packet
    // has few of them.
    assert!((9.9..10.1).contains(&one), "{one}");
    assert!(limits.is_explained());
}

#[test]
fn a_second_flow_brings_no_more_packets() {
    let packets = outcome("pps");
    let all = "steps of 128 bytes: farthest from the same, acknowledgements counted";
    met(&packets, &["one flow", "two flows", "only `pps_allowance_exceeded` moved", all]);
    assert!(packets.is_explained(), "{packets:?}");
    let points = &packets.lines[0].points;
    assert!(points.windows(2).all(|pair| pair[0].1 < pair[1].1), "{points:?}");
    // A c5.large has fewer packets per second (0.75 of 0.781, an estimate), and the same ceiling of
    // one flow.
    met(&packets, &["c5.large, the same steps: farthest from its own limits"]);
    let older = &packets
        .lines
        .iter()
        .find(|line| line.name.ends_with("c5.large by segment size"))
        .unwrap()
        .points;
    let of_older = |at: usize| older[at].1 / points[at].1;
    assert!((0.93..0.985).contains(&of_older(0)), "{older:?} {points:?}");
    assert!((0.99..1.01).contains(&of_older(2)), "{older:?} {points:?}");
    // Outside of a placement group small segments have the same limit of packets, and large ones
    // half of the ceiling.
    for name in ["c5.large", "c7i.large"] {
        met(&packets, &[&format!("{name} outside, the same steps: farthest from its own limits")]);
        let outside = format!("one flow of a {name} outside by segment size");
        let outside = packets.lines.iter().find(|line| line.name == outside).unwrap();
        let inside = if name == "c5.large" { older } else { points };
        let of_inside = |at: usize| outside.points[at].1 / inside[at].1;
        assert!((0.99..1.01).contains(&of_inside(0)), "{outside:?} {inside:?}");
        assert!((0.49..0.53).contains(&of_inside(2)), "{outside:?} {inside:?}");
    }
}

#[test]
fn credits_are_spent_and_come_back() {
    let credits = outcome("credits");
    let names = ["with credits", "credits last", "without credits", "earned in 10 idle seconds"];
    met(&credits, &names);
    assert!(here(&credits, "credits at launch") > 35.0);
    assert!(here(&credits, "credits at the end") < 0.01);
}

#[test]
fn sixteen_connections_stop_at_their_ceilings_and_express_lifts_them() {
    let nconnect = outcome("nconnect");
    let (plain, express) = ("16 connections", "16 connections, ENA Express");
    met(&nconnect, &["one connection", plain, express, "share of packets that came by SRD"]);
    assert!(here(&nconnect, express) >= 95.0);
    assert!(here(&nconnect, express) > 1.19 * here(&nconnect, plain));
}

/// The first segments of 512 connections are 45 MB, and the sender's queue for the receiver holds
/// 32 MiB. TCP retransmits the segments that the queue drops, and the loss is reported.
#[test]
fn regression_frames_beyond_the_queue_for_a_peer_are_reported_and_sent_again() {
    const CONNECTIONS: usize = 512;
    const BYTES: u64 = 128 << 10;
    let pair = crate::machines::card::Pair {
        express: true,
        ..crate::machines::card::Pair::of("c6in.16xlarge")
    };
    let flow = crate::workload::FlowPlan::at(0, lab::SENDER, lab::RECEIVER, BYTES);
    let sent = lab::GuestTraffic {
        flows: vec![flow; CONNECTIONS],
        triggers: Vec::new(),
        datagrams: vec![None; CONNECTIONS],
        mtu_bytes: lab::MTU_EXPRESS,
        window_initial_bytes: 0,
    };
    let network = crate::engine::topology::dumbbell::DumbbellSpec {
        middle_bps: 2_500_000_000,
        ..lab::NETWORK
    };
    let mut world = lab::world_of(&pair, network.build().unwrap(), sent, 1).unwrap();
    assert_eq!(world.run(20 * lab::SECOND), crate::engine::world::Ended::Finished);
    let full = world.nodes()[lab::SENDER as usize].stage().traffic.queue_dropped_full;
    assert!(full > 0);
    lab::check(&world).unwrap();
    assert!(world.flows().iter().all(|flow| flow.delivered_bytes == BYTES));
    let note = ceilings::moved("512 connections", &world);
    assert!(note.contains(&format!(", frames dropped since the queue was full {full}")), "{note}");
}

/// A path is slower than the limit of a flow. So a flow without ENA Express is limited to the speed
/// of one path.
#[test]
fn a_flow_with_express_exceeds_one_path_and_one_without_does_not() {
    const PATH_GBPS: f64 = 8.0;
    let time_ps = 20 * lab::MS;
    for (express, least, most) in [(true, 2.5 * PATH_GBPS, 25.0), (false, 0.7 * PATH_GBPS, 8.0)] {
        let pair = crate::machines::card::Pair {
            express,
            ..crate::machines::card::Pair::of("c7i.24xlarge")
        };
        let traffic = lab::streams(1);
        let mut world =
            lab::world_over(&pair, 8_000_000_000, lab::MTU_EXPRESS, &traffic, 1).unwrap();
        let arrived = lab::steps(&mut world, time_ps, 2);
        lab::check(&world).unwrap();
        let gbps = lab::gbps(arrived[1][0], time_ps);
        assert!((least..most).contains(&gbps), "express {express}: {gbps} Gb/s");
        for node in world.nodes() {
            let came = node.stage().traffic;
            assert_eq!([came.srd_rx_pkts > 0, came.plain_rx_pkts > 0], [express, !express]);
        }
    }
}

#[test]
fn an_incast_through_express_takes_little_more_than_its_bytes() {
    let incast = outcome("incast");
    let cases = ["ENA Express", "ENA Express, first window of two packets", "without ENA Express"];
    let [express, small, plain] =
        cases.map(|name| format!("{name}, last of 48 over ideal, worst of 4 seeds"));
    met(&incast, &[&small, "share of packets that came by SRD"]);
    // The reference value is missed for a known cause: the first burst.
    assert!(here(&incast, &express) < 1.06 && incast.is_explained(), "{incast:?}");
    assert!(here(&incast, &plain) > 2.0 * here(&incast, &express), "{incast:?}");
}

#[test]
fn round_trips_are_shorter_in_one_rack_and_load_between_racks_does_not_lengthen_them() {
    let latency = outcome("latency");
    for figure in &latency.figures {
        println!("{}: {}", figure.name, figure.shown());
    }
    for protocol in ["UDP", "TCP"] {
        let median = |place: &str| here(&latency, &format!("{protocol}, {place}: median"));
        let [near, racks, pods] = ["one rack", "two racks", "two pods"].map(median);
        // Two links and a switch each way; four and three; six and five. A link has a delay of 1
        // us, and a switch of 0.5 us.
        for (time, idle) in [(near, 5.0), (racks, 11.0), (pods, 17.0)] {
            assert!((idle..idle + 2.0).contains(&time), "{protocol} {near} {racks} {pods}");
        }
    }
    let p99 = |name: &str| here(&latency, &format!("TCP beside load, {name}: p99"));
    let [near, plain, express] = ["one rack", "two pods", "two pods, ENA Express"].map(p99);
    assert!(near < 7.0, "{near}: the load is on other links");
    // The port between the racks has a queue of 2 MB, which is 640 us of its link.
    assert!((100.0..1000.0).contains(&plain), "{plain}");
    assert!(express < plain / 3.0, "{express} {plain}");
}

#[test]
fn the_allowance_is_counted_down_to_zero_and_no_entry_is_given_up() {
    let full = outcome("tracking-full");
    assert!(full.figures.iter().all(|figure| figure.is_met() == Some(true)), "{full:?}");
    let falling = &full.lines[0].points;
    assert!(falling.iter().filter(|(_, left)| (1.0..136_811.0).contains(left)).count() > 10);
}

#[test]
fn a_minutes_average_hides_a_burst_that_counters_show() {
    let burst = outcome("microburst");
    let datagrams = "eight UDP flows: datagrams sent in a second";
    met(&burst, &[datagrams, "what arrives", "share that is dropped", "segments sent again"]);
    assert!(here(&burst, "waited for bw_out") > 0.0 && here(&burst, "dropped by bw_out") > 0.0);
    assert!(here(&burst, "the minute's average") < 0.11 * here(&burst, "least of the seconds"));
}

#[test]
fn untracked_flows_take_no_entry_and_end_with_their_rule() {
    let untracked = outcome("untracked");
    assert!(untracked.figures.iter().all(|figure| figure.is_met() == Some(true)), "{untracked:?}");
}

#[test]
fn a_seed_gives_the_same_figures_again() {
    let json = |outcome: &Outcome| serde_json::to_string(outcome).unwrap();
    assert_eq!(json(&outcome("incast")), json(&outcome("incast")));
    let other = find("incast").unwrap().run(&Options { seed: 2, ..QUICK }).unwrap();
    assert_ne!(json(&outcome("incast")), json(&other));
}
