//! Speed of the engine alone: transmissions of a packet over a link per CPU second, on full-load
//! permutations. The node does almost no work of its own.
//!
//! `cargo run --release -p srd-sim --example engine_speed`

use srd_sim::blast::{Blast, BlastConfig};
use srd_sim::process::{peak_rss_bytes, prefer_huge_pages, thread_cpu_ns};
use srd_sim::topology::clos::{ClosSpec, Links};
use srd_sim::workload::{FlowPlan, Workload};
use srd_sim::world::{World, WorldConfig};

fn main() {
    prefer_huge_pages();
    for (k, megabytes) in [(8, 8), (8, 2), (16, 2), (32, 1)] {
        measure(k, megabytes << 20);
    }
}

fn measure(k: u32, bytes: u64) {
    let links = Links {
        host_bps: 100_000_000_000,
        up_bps: 100_000_000_000,
        latency_ps: 1_000_000,
        switch_latency_ps: 0,
        bundle: 1,
    };
    let topology = ClosSpec::fat_tree(k, [1, 1], &links).build().expect("a regular tree");
    let hosts = topology.hosts;
    let flows = (0..hosts).map(|h| FlowPlan::at(0, h, (h + hosts / 2 + 1) % hosts, bytes));
    let workload = Workload { flows: flows.collect(), ..Workload::default() };
    let node = |host| Blast::new(host, BlastConfig::default());
    let begin_ns = thread_cpu_ns();
    let mut world = World::new(topology, workload, WorldConfig::default(), node)
        .expect("the workload fits the tree");
    let built_ns = thread_cpu_ns();
    let ended = world.run(1_000_000_000_000);
    let ran_s = (thread_cpu_ns() - built_ns) as f64 / 1e9;
    world.check_conservation().expect("packets are conserved");
    let hops = world.packet_hops();
    let last_ps = world.flows().iter().filter_map(|f| f.finished_ps).max();
    println!(
        "{hosts:5} hosts: {ended:?} at {:.1} us, {hops} hop-packets in {:.3} CPU s: {:.2} M/s \
         ({:.1} ns each, {:.2} events each), built in {:.1} ms, {} dropped, {} MB",
        last_ps.unwrap_or(0) as f64 / 1e6,
        ran_s,
        hops as f64 / ran_s / 1e6,
        ran_s * 1e9 / hops as f64,
        world.counters().events as f64 / hops as f64,
        (built_ns - begin_ns) as f64 / 1e6,
        world.counters().dropped_total(),
        peak_rss_bytes() >> 20,
    );
}
