//! Replay of the fuzzers' corpus for the parsers, on a stable toolchain and through the same
//! functions. An ignored test writes the seeds: `cargo test -p srd-sim --test it corpus:: --
//! --ignored`.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use crate::{bodies, seeds};
use prost::Message;
use srd_sim::workload::chakra::attribute::{Attribute, BoolList, Value};
use srd_sim::workload::chakra::trace::{Metadata, Node, node_type};
use std::fs;

type Body = fn(&[u8]);

const TARGETS: [(&str, Body); 5] = [
    ("chakra", bodies::chakra),
    ("scenario", bodies::scenario),
    ("topo", bodies::topo),
    ("cm", bodies::cm),
    ("traces", bodies::traces),
];

#[test]
fn reader_seeds_replay() {
    for (target, body) in TARGETS {
        seeds::replay(target, body);
    }
}

/// A short form of fuzzing: every seed is cut short at each position, and single bytes are changed.
#[test]
fn reader_seeds_survive_cuts_and_changes() {
    for (target, body) in TARGETS {
        for seed in seeds::paths(target) {
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
        let directory = seeds::corpus().join(target);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(name), text).unwrap();
    }
    let directory = seeds::corpus().join("chakra");
    fs::create_dir_all(&directory).unwrap();
    for (name, nodes) in [("kineto.et", kineto()), ("types.et", types())] {
        fs::write(directory.join(name), trace(&nodes)).unwrap();
    }
}

/// Returns the file of a rank. Its first byte is the length of its metadata.
fn trace(nodes: &[Node]) -> Vec<u8> {
    let mut bytes = Metadata { version: "0.0.4".into() }.encode_length_delimited_to_vec();
    nodes.iter().for_each(|node| bytes.extend(node.encode_length_delimited_to_vec()));
    bytes
}

fn attribute(name: &str, value: Value) -> Attribute {
    Attribute { name: name.into(), value: Some(value) }
}

/// Returns nodes as in traces of PyTorch: the host's record of a collective, the collective, and a
/// reference to a parent that is not in the file.
fn kineto() -> Vec<Node> {
    let host = |host: bool| attribute("is_cpu_op", Value::Bool(host));
    let record = Node {
        id: 1,
        name: "c10d::allreduce_".into(),
        kind: node_type::COLLECTIVE,
        control: vec![77],
        duration_micros: 85,
        attributes: vec![host(true)],
        ..Node::default()
    };
    let collective = Node {
        id: 2,
        kind: node_type::COLLECTIVE,
        control: vec![1],
        data: vec![1],
        attributes: vec![
            host(false),
            attribute("comm_type", Value::Int64(0)),
            attribute("comm_size", Value::Int64(4096)),
            attribute("pg_name", Value::String("a".into())),
            attribute("involved_dim", Value::BoolList(BoolList { values: vec![true] })),
        ],
        ..Node::default()
    };
    vec![record, collective]
}

/// Returns nodes with numbers in types that are rare in traces.
fn types() -> Vec<Node> {
    let compute = Node {
        id: 1,
        kind: node_type::COMPUTE,
        duration_micros: 9,
        attributes: vec![attribute("is_cpu_op", Value::Sint32(1))],
        ..Node::default()
    };
    let collective = Node {
        id: 2,
        kind: node_type::COLLECTIVE,
        data: vec![1],
        attributes: vec![
            attribute("comm_type", Value::Double(6.0)),
            attribute("comm_size", Value::Fixed64(96)),
            attribute("pg_name", Value::Bytes(b"a".to_vec())),
        ],
        ..Node::default()
    };
    vec![compute, collective]
}

const SEEDS: [(&str, &str, &str); 14] = [
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
    (
        "traces",
        "messages.goal",
        "num_ranks 2\nrank 0 {\nl1: calc 9\nl2: send 8b to 1 tag 7 cpu 1\nl2 requires l1\n}\n\
         rank 1 {\nl1: recv 9b from 0 tag 7\nl2: calc 5\nl2 irequires l1 // end\n}\n",
    ),
    ("traces", "collective.et", COLLECTIVE),
    ("traces", "messages.et", MESSAGES),
    ("chakra", "collective.et", COLLECTIVE),
    ("chakra", "messages.et", MESSAGES),
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

/// A Chakra trace with a calculation and an all-reduce, in the format of Protocol Buffers.
const COLLECTIVE: &str = concat!(
    "\x07\x0a\x050.0.4\x06\x08\x01\x18\x048\x09$\x08\x02\x18\x07 \x01R\x0d\x0a\x09com",
    "m_typeH\x00R\x0d\x0a\x09comm_sizeH`",
);
/// A Chakra trace in which a rank sends to itself.
const MESSAGES: &str = concat!(
    "\x07\x0a\x050.0.4/\x08\x01\x18\x05R\x0c\x0a\x08comm_dstH\x00R\x0d\x0a\x09comm_si",
    "zeH\x09R\x0c\x0a\x08comm_tagH\x031\x08\x02\x18\x06 \x01R\x0c\x0a\x08comm_srcH",
    "\x00R\x0d\x0a\x09comm_sizeH\x09R\x0c\x0a\x08comm_tagH\x03",
);

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
