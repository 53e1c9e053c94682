//! Speed of the simulator with the production SRD endpoint on every host: transmissions of a packet
//! over a link per CPU second, and flow completion times of a full-load permutation.
//!
//! `cargo run --release -p srd-sim --example srd_speed -- [K] [MIB]`

use srd_proto::{Config, Duration};
use srd_sim::process::{peak_rss_bytes, prefer_huge_pages, thread_cpu_ns};
use srd_sim::srd_node::{SrdNode, SrdNodeConfig};
use srd_sim::topology::clos::{ClosSpec, Links};
use srd_sim::workload::pattern::permutation;
use srd_sim::world::{World, WorldConfig};

fn main() {
    prefer_huge_pages();
    let mut args = std::env::args().skip(1);
    let k = args.next().map_or(8, |a| a.parse().expect("K is a number"));
    let mib: u64 = args.next().map_or(2, |a| a.parse().expect("MIB is a number"));
    let links = Links {
        host_bps: 100_000_000_000,
        up_bps: 100_000_000_000,
        latency_ps: 1_000_000,
        switch_latency_ps: 0,
        bundle: 1,
    };
    let topology = ClosSpec::fat_tree(k, [1, 1], &links).build().expect("a regular tree");
    let hosts = topology.hosts;
    let rtt_ns = topology.diameter_rtt_ps(4150, 64) / 1000;
    let endpoint = Config {
        packet_bytes_max: 4122,
        rtt_initial: Duration::from_nanos(rtt_ns),
        ..Config::default()
    };
    let config = SrdNodeConfig {
        endpoint,
        seed: 1,
        check_payload: false,
        resend_failed: false,
        receive_buffers: None,
    };
    let workload =
        permutation(hosts, 1, mib << 20, &mut srd_proto::rng::Rng::new(1)).expect("few flows");
    let node = |host| SrdNode::new(host, config.clone());
    let mut world = World::new(topology, workload, WorldConfig::default(), node)
        .expect("the workload fits the tree");
    let built_ns = thread_cpu_ns();
    let ended = world.run(1_000_000_000_000);
    let ran_s = (thread_cpu_ns() - built_ns) as f64 / 1e9;
    world.check_conservation().expect("packets are conserved");
    let hops = world.packet_hops();
    let mut fct_us: Vec<f64> =
        world.flows().iter().filter_map(|f| f.finished_ps).map(|ps| ps as f64 / 1e6).collect();
    fct_us.sort_by(f64::total_cmp);
    let at = |percent: usize| fct_us.get(fct_us.len() * percent / 100).copied().unwrap_or(0.0);
    let ideal_us = (mib << 20) as f64 * 8e-5 + rtt_ns as f64 / 1e3;
    println!(
        "{hosts} hosts: {ended:?}, median {:.3} p99 {:.3} max {:.3} of ideal {ideal_us:.1} us; \
         {hops} hop-packets in {ran_s:.3} CPU s: {:.2} M/s ({:.1} ns each), {} dropped, {} \
         livelocks, {} MB",
        at(50) / ideal_us,
        at(99) / ideal_us,
        fct_us.last().copied().unwrap_or(0.0) / ideal_us,
        hops as f64 / ran_s / 1e6,
        ran_s * 1e9 / hops as f64,
        world.counters().dropped_total(),
        world.counters().timer_livelocks,
        peak_rss_bytes() >> 20,
    );
}
