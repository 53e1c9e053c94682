//! Replays the fuzzers' corpus of the readers on a stable toolchain, through the same
//! functions, and writes the seeds: `cargo test -p srd-sim --test corpus -- --ignored`.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

#[path = "../../../fuzz/bodies/sim.rs"]
mod bodies;

use std::fs;
use std::path::{Path, PathBuf};

type Body = fn(&[u8]);

const TARGETS: [(&str, Body); 3] =
    [("scenario", bodies::scenario), ("topo", bodies::topo), ("cm", bodies::cm)];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The seeds of a target: what fuzzers added locally is named by a hash and left to them.
fn seeds(target: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(corpus().join(target)).expect("every target has seeds");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.len() != 40));
    paths.sort();
    paths
}

#[test]
fn reader_seeds_replay() {
    for (target, body) in TARGETS {
        let seeds = seeds(target);
        assert!(!seeds.is_empty(), "no seeds for {target}");
        for seed in seeds {
            println!("{}", seed.display());
            body(&fs::read(&seed).unwrap());
        }
    }
}

/// A taste of what the fuzzers do: every seed cut short, and with single bytes changed.
#[test]
fn reader_seeds_survive_cuts_and_changes() {
    for (target, body) in TARGETS {
        for seed in seeds(target) {
            let bytes = fs::read(&seed).unwrap();
            for n in 0..bytes.len() {
                body(&bytes[..n]);
                for byte in *b"0-9\n" {
                    let mut changed = bytes.clone();
                    changed[n] = byte;
                    body(&changed);
                }
            }
        }
    }
}

#[test]
#[ignore = "writes the seeds"]
fn write_seeds() {
    for (target, name, text) in SEEDS {
        let directory = corpus().join(target);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(name), text).unwrap();
    }
}

const SEEDS: [(&str, &str, &str); 9] = [
    ("topo", "fat-tree.topo", FAT_TREE),
    ("topo", "leaf-spine.topo", LEAF_SPINE),
    (
        "cm",
        "incast.cm",
        "Nodes 8\nConnections 2\n1->0 id 1 start 0 size 2097152\n2->0 id 2 start 1.5 size 1\n",
    ),
    ("cm", "triggers.cm", TRIGGERS),
    (
        "cm",
        "failure.cm",
        "Nodes 8\nConnections 1\nFailures 1\n1->0 id 1 start 0 size 9\n\
         failure tier 1 switch 0 link 0\n",
    ),
    ("scenario", "incast.toml", INCAST),
    ("scenario", "everything.toml", EVERYTHING),
    (
        "scenario",
        "fat-tree.toml",
        "[topology]\nkind = \"fat-tree\"\nk = 4\noversubscribed = [2, 1]\n",
    ),
    (
        "scenario",
        "dumbbell.toml",
        "[topology]\nkind = \"dumbbell\"\nside_hosts = 2\ncore_gbps = 25.0\n",
    ),
];

const FAT_TREE: &str = "\
Nodes 16
Tiers 3
Podsize 4
# hosts
Tier 0
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Tier 1
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Bundle 1
Tier 2
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
Bundle 1
";

const LEAF_SPINE: &str = "\
nodes 8
tiers 2
podsize 8
tier 0
downlink_speed_gbps 25.5
radix_down 4
radix_up 4
queue_up 100
downlink_latency_ns 500
switch_latency_ns 300
tier 1
downlink_speed_gbps 10
radix_down 2
queue_down 50
oversubscribed 1
";

const TRIGGERS: &str = "\
Nodes 4
Connections 2
Triggers 1
0->1 id 1 start 0 size 1000 send_done_trigger 7
2->3 id 2 trigger 7 size 1000
trigger id 7 oneshot
";

const INCAST: &str = r#"
name = "incast"
packet_bytes = 4150
transports = ["srd", "tcp"]
[topology]
kind = "leaf-spine"
leaves = 2
spines = 4
leaf_hosts = 4
[[workload]]
kind = "incast"
senders = 4
flows_per_sender = 12
bytes = "2MB"
"#;

const EVERYTHING: &str = r#"
name = "everything"
description = "every table once"
horizon_us = 1000.0
[topology]
kind = "fat-tree"
k = 4
core_gbps = 25
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
start_us = 5.0
[[fault]]
kind = "loss"
links = "all"
probability = 0.001
at_us = 0.0
[srd]
paths = 16
[tcp]
rto_min_us = 5000.0
[measure]
interval_us = 10.0
flows = true
"#;
