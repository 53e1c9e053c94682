//! The experiment `latency`: round trips of small messages by placement, protocol and load.

use super::figure::{DERIVED, Figure, Near, TALK};
use super::lab::{self, GuestTraffic, MS, MTU, MTU_EXPRESS};
use super::{Experiment, Findings, Options};
use crate::engine::node::ENDLESS;
use crate::engine::topology::clos::{ClosSpec, Links};
use crate::engine::world::{FlowState, US, World};
use crate::machines::card::{CardNode, Datagrams, Pair, Ports};
use crate::runs::run::quantiles;
use crate::workload::{FlowPlan, Start, TriggerId, TriggerKind};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    about: "c6in.16xlarge: round trips of messages of 64 bytes to an instance in the same rack, in \
            another rack and in another part of the network, by UDP and by TCP; alone, and while \
            other instances fill the links between the racks, with ENA Express and plainly.",
    run,
};

/// The instance type, which has ENA Express and a bandwidth of 100 Gb/s.
const KIND: &str = "c6in.16xlarge";
/// Number of links of a switch: a fat tree of such switches has 16 hosts, two in each rack and four
/// in each part (pod).
const SWITCH_LINKS: u32 = 4;
const HOSTS: u32 = 16;
/// The links between switches have a quarter of the bandwidth of an instance, so that a few flows
/// fill them.
const LINKS: Links = Links {
    host_bps: 100_000_000_000,
    up_bps: 25_000_000_000,
    latency_ps: US,
    switch_latency_ps: US / 2,
    bundle: 1,
};
/// Host of the instance that sends requests.
const CLIENT: u32 = 0;
/// Hosts of the servers: in the client's rack, in another rack of the client's pod, in another pod.
const SERVERS: [(&str, u32); 3] = [("one rack", 1), ("two racks", 2), ("two pods", 4)];
const FAR: usize = 2;
/// Payload of requests and replies in bytes.
const MESSAGE_BYTES: u16 = 64;
/// Time from one request to the next.
const APART_PS: u64 = 103 * US;
/// Time in which the last reply should arrive. A request without a reply counts as one that takes
/// until the end of this time.
const LAST_PS: u64 = 10 * MS;
/// Time at which the first request leaves. Until then, the hosts have established their contexts
/// and the load has filled the links.
const START_PS: u64 = 10 * MS;
/// Host that receives the load, in the rack of the far server, and the hosts that send it, in the
/// two other pods. Each sends this number of streams.
const LOADED: u32 = 5;
const LOADING: [u32; 8] = [8, 9, 10, 11, 12, 13, 14, 15];
const STREAMS: u32 = 2;

/// Protocol of requests and replies.
#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    Udp,
    Tcp,
}

/// Conditions of the round trips of a case.
#[derive(Clone, Copy)]
struct Case {
    protocol: Protocol,
    server: usize,
    is_loaded: bool,
    express: bool,
}

fn run(options: &Options) -> Result<Findings, String> {
    let mut found = Findings::default();
    for (name, protocol) in [("UDP", Protocol::Udp), ("TCP", Protocol::Tcp)] {
        let mut medians = Vec::new();
        for (server, (place, _)) in SERVERS.into_iter().enumerate() {
            let case = Case { protocol, server, is_loaded: false, express: false };
            let (median, _) = round_trips_us(case, options)?;
            found.figures.push(Figure::new(format!("{name}, {place}: median"), "us", median));
            medians.push(median);
        }
        let share = Figure::new(format!("  {name}: one rack over two pods"), "", {
            medians[0] / medians[FAR]
        });
        found.figures.push(share.wanted(1.0, Near::AtMost, DERIVED));
    }
    let mut tails = Vec::new();
    for (name, server, express) in
        [("one rack", 0, false), ("two pods", FAR, false), ("two pods, ENA Express", FAR, true)]
    {
        let case = Case { protocol: Protocol::Tcp, server, is_loaded: true, express };
        let (median, p99) = round_trips_us(case, options)?;
        found.figures.push(Figure::new(format!("TCP beside load, {name}: median"), "us", median));
        found.figures.push(Figure::new(format!("TCP beside load, {name}: p99"), "us", p99));
        tails.push(p99);
    }
    let share = Figure::new("  two pods: p99 with ENA Express over plain", "", tails[2] / tails[1]);
    found.figures.push(share.wanted(1.0, Near::AtMost, TALK));
    found.notes.push(
        "processors, interrupts and packet rings of the guests take no time here, so UDP and TCP \
         differ by their headers alone; a kernel adds tens of microseconds to each of these times"
            .into(),
    );
    Ok(found)
}

/// Runs the requests of a case. Returns the median and the 99th percentile of their round trips, in
/// microseconds.
fn round_trips_us(case: Case, options: &Options) -> Result<(f64, f64), String> {
    let requests = options.quick_or(100, 1000);
    let pair = Pair { senders: HOSTS - 1, express: case.express, ..Pair::of(KIND) };
    let network = ClosSpec::fat_tree(SWITCH_LINKS, [1, 1], &LINKS).build();
    let network = network.map_err(|error| error.0)?;
    let mut world = lab::world_of(&pair, network, traffic(case, requests), options.seed)?;
    world.run_until(START_PS + u64::from(requests) * APART_PS + LAST_PS);
    lab::check(&world)?;
    let times = quantiles(times_us(&world, requests));
    Ok((times.p50, times.p99))
}

/// Returns the requests, each of which starts a reply, and the load. Request `n` is flow `n`, and
/// its reply is flow `requests + n`.
fn traffic(case: Case, requests: u32) -> GuestTraffic {
    let (_, server) = SERVERS[case.server];
    let bytes = u64::from(MESSAGE_BYTES);
    let request = |n: u32| FlowPlan {
        received_trigger: Some(TriggerId(n)),
        ..FlowPlan::at(START_PS + u64::from(n) * APART_PS, CLIENT, server, bytes)
    };
    let reply = |n: u32| FlowPlan {
        start: Start::On(TriggerId(n)),
        ..FlowPlan::at(0, server, CLIENT, bytes)
    };
    let messages = (0..requests).map(request).chain((0..requests).map(reply));
    let load = LOADING.into_iter().filter(|_| case.is_loaded);
    let stream = |src| (0..STREAMS).map(move |_| FlowPlan::at(MS, src, LOADED, ENDLESS));
    let flows: Vec<FlowPlan> = messages.chain(load.flat_map(stream)).collect();
    let plan = Datagrams { payload_bytes: MESSAGE_BYTES, rate_bps: 1_000_000, ports: Ports::One };
    let is_udp = case.protocol == Protocol::Udp;
    let plan = |flow: &FlowPlan| (is_udp && flow.bytes == bytes).then_some(plan);
    let datagrams = flows.iter().map(plan).collect();
    let mtu_bytes = if case.express { MTU_EXPRESS } else { MTU };
    let triggers = vec![TriggerKind::OneShot; requests as usize];
    GuestTraffic { flows, triggers, datagrams, mtu_bytes, window_initial_bytes: 0 }
}

/// Returns the time from the start of each request to the arrival of its reply.
fn times_us(world: &World<CardNode>, requests: u32) -> Vec<f64> {
    let (messages, _) = world.flows().split_at(2 * requests as usize);
    let (requests, replies) = messages.split_at(requests as usize);
    let time = |(request, reply): (&FlowState, &FlowState)| {
        let now_ps = world.now_ps();
        let took_ps = reply.received_ps.unwrap_or(now_ps) - request.started_ps.unwrap_or(0);
        took_ps as f64 / US as f64
    };
    requests.iter().zip(replies).map(time).collect()
}
