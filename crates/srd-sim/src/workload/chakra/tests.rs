//! Tests of Chakra traces: parsing, the messages of collectives, and refusals.

use super::attribute::{Attribute, BoolList, BytesList, Fixed64List, Int64List, StringList, Value};
use super::trace::Metadata;
use super::*;
use crate::workload::schedule::Wait;
use prost::Message;

const HOSTS: [u32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

fn number(name: &str, value: i64) -> Attribute {
    attribute(name, Value::Int64(value))
}

fn attribute(name: &str, value: Value) -> Attribute {
    Attribute { name: name.into(), value: Some(value) }
}

fn node(id: u64, kind: i32, data: &[u64], attributes: Vec<Attribute>) -> Node {
    Node { id, kind, data: data.to_vec(), attributes, ..Node::default() }
}

fn file(nodes: &[Node]) -> Vec<u8> {
    let mut bytes = Metadata { version: "0.0.4".into() }.encode_length_delimited_to_vec();
    nodes.iter().for_each(|node| bytes.extend(node.encode_length_delimited_to_vec()));
    bytes
}

fn workload(files: &[Vec<Node>]) -> Result<Workload, TraceError> {
    let files: Vec<Vec<u8>> = files.iter().map(|nodes| file(nodes)).collect();
    read(&files, &Groups::new(), &HOSTS)
}

fn refused(files: &[Vec<Node>]) -> String {
    workload(files).unwrap_err().to_string()
}

/// Returns the workload of a trace in which every rank takes part in one collective.
fn all(ranks: usize, kind: i64, bytes: i64) -> Workload {
    let attributes = || vec![number("comm_type", kind), number("comm_size", bytes)];
    let nodes = vec![node(1, node_type::COLLECTIVE, &[], attributes())];
    workload(&vec![nodes; ranks]).unwrap()
}

fn messages(workload: &Workload) -> Vec<(u32, u32, u64)> {
    workload.flows.iter().map(|flow| (flow.src.0, flow.dst.0, flow.bytes)).collect()
}

#[test]
fn computations_messages_and_dependencies_are_read() {
    let mut compute = node(7, node_type::COMPUTE, &[], Vec::new());
    compute.duration_micros = 3;
    compute.attributes = vec![attribute("is_cpu_op", Value::Bool(true))];
    let mut kernel = node(8, node_type::COMPUTE, &[7], Vec::new());
    kernel.duration_micros = 1;
    let to = |name: &str| vec![number(name, 1), number("comm_size", 500), number("comm_tag", 9)];
    let send = node(9, node_type::SEND, &[8], to("comm_dst"));
    let mut receive = node(1, node_type::RECEIVE, &[], to("comm_src"));
    receive.attributes[0] = number("comm_src", 0);
    let read = workload(&[vec![compute, kernel, send], vec![receive]]).unwrap();
    assert_eq!(messages(&read), [(0, 1, 500)]);
    let schedule = read.schedule.unwrap();
    let what: Vec<Action> = schedule.operations.iter().map(|operation| operation.what).collect();
    let expected = [
        Action::Calculate { ps: 3_000_000, cpu: HOST },
        Action::Calculate { ps: 1_000_000, cpu: ACCELERATOR },
        Action::Send { flow: 0 },
        Action::Receive { flow: 0 },
    ];
    assert_eq!(what, expected);
    let waits = [Wait { later: 1, earlier: 0 }, Wait { later: 2, earlier: 1 }];
    assert_eq!(schedule.after_end, waits);
}

#[test]
fn each_collective_sends_what_its_algorithm_sends() {
    let ring = messages(&all(4, 0, 4000));
    assert_eq!(ring.len(), 4 * 2 * 3);
    assert!(ring.iter().all(|(from, to, bytes)| *to == (from + 1) % 4 && *bytes == 1000));
    assert_eq!(messages(&all(4, 7, 4000)).len(), 4 * 3);
    let gather = messages(&all(4, 2, 4000));
    assert!(gather.len() == 12 && gather.iter().all(|(.., bytes)| *bytes == 4000));
    let every = messages(&all(4, 6, 4000));
    assert_eq!(every.len(), 12);
    assert!(every.iter().all(|(from, to, bytes)| from != to && *bytes == 1000));
    let tree = [(0, 1, 9), (0, 2, 9), (1, 3, 9), (0, 4, 9), (1, 5, 9)];
    assert_eq!(messages(&all(6, 5, 9)), tree);
    let inwards = [(4, 0, 9), (5, 1, 9), (2, 0, 9), (3, 1, 9), (1, 0, 9)];
    assert_eq!(messages(&all(6, 1, 9)), inwards);
    assert_eq!(messages(&all(3, 3, 30)), [(1, 0, 10), (2, 0, 10)]);
    assert_eq!(messages(&all(3, 4, 30)), [(0, 1, 10), (0, 2, 10)]);
    assert_eq!(messages(&all(5, 9, 0)).len(), 5 * 3);
    for kind in 0..10 {
        assert!(messages(&all(1, kind, 100)).is_empty(), "a group of one needs no network");
    }
}

#[test]
fn groups_have_the_ranks_of_the_file_or_those_that_name_them() {
    let collective = |id: u64, group: &str, bytes: i64| {
        let mut attributes = vec![number("comm_type", 6), number("comm_size", bytes)];
        attributes.push(attribute("pg_name", Value::String(group.to_owned())));
        node(id, node_type::COLLECTIVE, &[], attributes)
    };
    let ranks: Vec<Vec<Node>> = (0..4)
        .map(|rank| vec![collective(1, ["a", "b"][rank % 2], 20), collective(2, "c", 40)])
        .collect();
    let seen = messages(&workload(&ranks).unwrap());
    assert_eq!(seen.len(), 2 + 2 + 12);
    // Only the group of all ranks has messages between even and odd ranks.
    assert_eq!(seen.iter().filter(|(from, to, _)| from % 2 != to % 2).count(), 8, "{seen:?}");
    let files: Vec<Vec<u8>> = ranks.iter().map(|nodes| file(nodes)).collect();
    let error = read(&files, &groups("{\"a\": [0, 1]}").unwrap(), &HOSTS).unwrap_err();
    assert_eq!(error.to_string(), "rank 2, node 1: process group `a` has no rank 2");
    let error = read(&files, &groups("{\"c\": [3, 2, 1, 0, 4]}").unwrap(), &HOSTS).unwrap_err();
    assert_eq!(error.to_string(), "process group `c` has rank 4, of which there is no file");
    let others = groups("{\"a\": [0, 2, 1], \"b\": [1, 3]}").unwrap();
    let error = read(&files, &others, &HOSTS).unwrap_err();
    assert!(
        error.to_string().starts_with("rank 1: process group `a` has 1 collectives"),
        "{error}"
    );
    let unknown = groups("{\"d\": [0, 1]}").unwrap();
    let error = read(&files, &unknown, &HOSTS).unwrap_err();
    assert!(error.to_string().ends_with("`d`: its groups are `a`, `b`, `c`"), "{error}");
    assert!(groups("[1]").unwrap_err().to_string().contains("write {\"NAME\""));
}

#[test]
fn traces_that_cannot_be_are_refused_with_rank_and_node() {
    let send = |attributes| vec![node(5, node_type::SEND, &[], attributes)];
    let whole = || vec![number("comm_dst", 1), number("comm_size", 5)];
    let collective = |kind, bytes| {
        let attributes = vec![number("comm_type", kind), number("comm_size", bytes)];
        vec![node(5, node_type::COLLECTIVE, &[], attributes)]
    };
    let mut long = node(5, node_type::COMPUTE, &[], Vec::new());
    long.duration_micros = u64::MAX;
    let twice = vec![node(5, node_type::COMPUTE, &[], Vec::new()); 2];
    let circle = vec![
        node(5, node_type::COMPUTE, &[6], Vec::new()),
        node(6, node_type::COMPUTE, &[5], Vec::new()),
    ];
    for (files, said) in [
        (vec![send(vec![number("comm_size", 5)])], "no attribute `comm_dst`"),
        (vec![send(vec![number("comm_dst", 1)]), Vec::new()], "no attribute `comm_size`"),
        (vec![send(whole())], "`comm_dst` is none of 1 ranks"),
        (vec![send(whole()), Vec::new()], "no receive fits: rank 0 to rank 1, tag 0"),
        (vec![collective(10, 5)], "`comm_type` 10 is not known"),
        (vec![collective(0, 1 << 41)], "is above"),
        (vec![collective(0, 5), collective(0, 6)], "AllReduce of 6 bytes; that of rank 0"),
        (vec![collective(0, 5), collective(2, 5)], "AllGather of 5 bytes; that of rank 0"),
        (vec![vec![node(5, 0, &[], Vec::new())]], "it has no type"),
        (vec![vec![long]], "takes longer than a day"),
        (vec![twice], "two nodes of this number"),
        (vec![vec![node(5, node_type::COMPUTE, &[4], Vec::new())]], "depends on node 4"),
        (vec![circle], "in a circle"),
    ] {
        let error = refused(&files);
        assert!(error.starts_with("rank ") && error.contains("node 5"), "{error}");
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(refused(&[Vec::new()]), "no rank has a node");
    assert!(refused(&vec![Vec::new(); 17]).contains("17 ranks, but the network has 16 hosts"));
    let receive = vec![number("comm_src", 0), number("comm_size", 4)];
    let receive = vec![node(6, node_type::RECEIVE, &[], receive)];
    let error = refused(&[send(whole()), receive]);
    assert!(error.contains("5 bytes of rank 0, node 5 do not fit into a receive of 4"), "{error}");
}

#[test]
fn no_cut_or_changed_byte_makes_it_panic() {
    let whole = vec![number("comm_type", 0), number("comm_size", 4000)];
    let bytes = file(&[node(1, node_type::COLLECTIVE, &[], whole)]);
    for at in 0..bytes.len() {
        let _ = read(&[bytes[..at].to_vec()], &Groups::new(), &HOSTS);
        for value in [0, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            let _ = read(&[changed, bytes.clone()], &Groups::new(), &HOSTS);
        }
    }
    let error = read(&[b"\x05abc".to_vec()], &Groups::new(), &HOSTS).unwrap_err();
    assert!(error.to_string().starts_with("rank 0: message 0 is no part of a trace"), "{error}");
}

#[test]
fn files_are_found_by_their_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("step");
    let error = files(&prefix).unwrap_err().to_string();
    assert!(error.contains("step.0.et") && error.contains("named by its PREFIX"), "{error}");
    for rank in [0, 1, 3] {
        let bytes = file(&[node(rank, node_type::COMPUTE, &[], Vec::new())]);
        std::fs::write(directory.path().join(format!("step.{rank}.et")), bytes).unwrap();
    }
    let error = files(&prefix).unwrap_err().to_string();
    assert!(error.ends_with("step.2.et is missing, but rank 3 has a file"), "{error}");
    std::fs::remove_file(directory.path().join("step.3.et")).unwrap();
    assert_eq!(files(&prefix).unwrap().len(), 2);
}

#[test]
fn memory_over_all_files_is_bounded() {
    let nodes: Vec<Node> =
        (0..2000).map(|id| node(id, node_type::COMPUTE, &[], Vec::new())).collect();
    let files: Vec<Vec<u8>> = vec![file(&nodes); 8];
    let within = |files: &[Vec<u8>]| read_within(files, &Groups::new(), &HOSTS, 1 << 20);
    within(&files[..2]).unwrap();
    let error = within(&files).unwrap_err().to_string();
    assert!(error.contains("more memory") && error.contains("fewer ranks"), "{error}");
    // A collective takes a few bytes in the file, but becomes many messages.
    let every = vec![number("comm_type", 6), number("comm_size", 160)];
    let nodes: Vec<Node> =
        (0..40).map(|id| node(id, node_type::COLLECTIVE, &[], every.clone())).collect();
    let error = within(&vec![file(&nodes); 16]).unwrap_err().to_string();
    assert!(error.contains("more memory"), "{error}");
    // The sends have no receives, so they stay in memory.
    let to = |tag: u64| {
        let tag = attribute("comm_tag", Value::Uint64(tag));
        vec![number("comm_dst", 0), number("comm_size", 1), tag]
    };
    let nodes: Vec<Node> = (0..9000).map(|id| node(id, node_type::SEND, &[], to(id))).collect();
    assert!(within(&[file(&nodes)]).unwrap_err().to_string().contains("more memory"));
}

#[test]
fn a_node_and_the_files_of_a_trace_have_their_bounds() {
    let named = |bytes: usize| {
        let name = "n".repeat(bytes);
        file(&[Node { name, ..node(1, node_type::COMPUTE, &[], Vec::new()) }])
    };
    read(&[named(trace::NODE_BYTES_MAX - 16)], &Groups::new(), &HOSTS).unwrap();
    let error = read(&[named(trace::NODE_BYTES_MAX)], &Groups::new(), &HOSTS).unwrap_err();
    assert!(error.to_string().contains("1048576 are the most"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("step");
    for rank in 0..3 {
        std::fs::write(directory.path().join(format!("step.{rank}.et")), [0; 10]).unwrap();
    }
    assert_eq!(files_within(&prefix, 30).unwrap().len(), 3);
    let error = files_within(&prefix, 29).unwrap_err().to_string();
    assert!(error.contains("step.2.et have more than 29 bytes"), "{error}");
}

/// Returns a value of every type that may contain a whole number.
fn forms(number: u8) -> Vec<Value> {
    let (text, bytes) = (number.to_string(), number.to_string().into_bytes());
    vec![
        Value::Double(number.into()),
        Value::Float(number.into()),
        Value::Int32(number.into()),
        Value::Int64(number.into()),
        Value::Uint32(number.into()),
        Value::Uint64(number.into()),
        Value::Sint32(number.into()),
        Value::Sint64(number.into()),
        Value::Fixed32(number.into()),
        Value::Fixed64(number.into()),
        Value::Sfixed32(number.into()),
        Value::Sfixed64(number.into()),
        Value::String(text.clone()),
        Value::Bytes(bytes.clone()),
        Value::Int64List(Int64List { values: vec![number.into()] }),
        Value::Fixed64List(Fixed64List { values: vec![number.into()] }),
        Value::StringList(StringList { values: vec![text] }),
        Value::BytesList(BytesList { values: vec![bytes] }),
    ]
}

/// In an earlier version, a numeric attribute was read only if it had one of four of the types that
/// Chakra has for numbers.
#[test]
fn regression_an_attribute_may_have_any_type() {
    for value in forms(40) {
        let attributes =
            vec![attribute("comm_type", Value::Fixed32(6)), attribute("comm_size", value)];
        let nodes = vec![node(1, node_type::COLLECTIVE, &[], attributes)];
        assert_eq!(messages(&workload(&vec![nodes; 2]).unwrap()), [(0, 1, 20), (1, 0, 20)]);
    }
    let true_forms = forms(1).into_iter().chain([
        Value::Bool(true),
        Value::String("True".into()),
        Value::BoolList(BoolList { values: vec![true] }),
    ]);
    let false_forms =
        forms(0).into_iter().chain([Value::Bool(false), Value::String("false".into())]);
    let both = true_forms.map(|value| (value, HOST)).chain(false_forms.map(|v| (v, ACCELERATOR)));
    for (value, cpu) in both {
        let said = format!("{value:?}");
        let mut compute = node(1, node_type::COMPUTE, &[], vec![attribute("is_cpu_op", value)]);
        compute.duration_micros = 1;
        let schedule = workload(&[vec![compute]]).unwrap().schedule.unwrap();
        assert_eq!(schedule.operations[0].what, Action::Calculate { ps: 1_000_000, cpu }, "{said}");
    }
}

#[test]
fn an_attribute_that_cannot_be_is_named() {
    for (value, says) in [
        (Value::Int64(-1), "`comm_size` is -1: negative"),
        (Value::Double(0.5), "`comm_size` is 0.5: no whole number"),
        (Value::Double(f64::NAN), "no whole number"),
        (Value::String("large".into()), "`comm_size` is a text"),
        (Value::Bytes(vec![0xff]), "no text"),
        (Value::Int64List(Int64List { values: vec![1, 2] }), "a list that has not exactly one"),
    ] {
        let attributes = vec![number("comm_type", 6), attribute("comm_size", value)];
        let error = refused(&[vec![node(5, node_type::COLLECTIVE, &[], attributes)]]);
        assert!(error.contains(says), "{error}");
    }
    let none = Attribute { name: "is_cpu_op".into(), value: None };
    let error = refused(&[vec![node(5, node_type::COMPUTE, &[], vec![none])]]);
    assert!(error.contains("`is_cpu_op` has no value"), "{error}");
    // The sign of a tag does not matter, because tags are only compared for equality.
    let message = |kind, name| {
        vec![node(
            5,
            kind,
            &[],
            vec![number(name, 0), number("comm_size", 7), number("comm_tag", -1)],
        )]
    };
    let (mut send, receive) =
        (message(node_type::SEND, "comm_dst"), message(node_type::RECEIVE, "comm_src"));
    send[0].attributes[0] = number("comm_dst", 1);
    assert_eq!(messages(&workload(&[send, receive]).unwrap()), [(0, 1, 7)]);
}

/// The files have the form that PyTorch writes: the host's record of a collective, parents that are
/// not in the file, and a parent in the call stack that waits for its child.
#[test]
fn regression_call_stacks_are_not_waited_for_and_records_of_hosts_take_their_time() {
    let on = |host: bool| attribute("is_cpu_op", Value::Bool(host));
    let collective = |data: &[u64]| {
        let attributes = vec![on(false), number("comm_type", 6), number("comm_size", 20)];
        node(3, node_type::COLLECTIVE, data, attributes)
    };
    let mut record = node(1, node_type::COLLECTIVE, &[], vec![on(true)]);
    record.duration_micros = 85;
    let read = workload(&vec![vec![record, collective(&[1])]; 2]).unwrap();
    assert_eq!(messages(&read).len(), 2);
    let calculated = Action::Calculate { ps: 85_000_000, cpu: HOST };
    assert_eq!(read.schedule.unwrap().operations[0].what, calculated);
    let absent = Node { control: vec![77], ..node(2, node_type::COMPUTE, &[], vec![on(true)]) };
    assert_eq!(messages(&workload(&vec![vec![absent, collective(&[2])]; 2]).unwrap()).len(), 2);
    let parent = node(1, node_type::COMPUTE, &[2], vec![on(true)]);
    let child = Node { control: vec![1], ..node(2, node_type::COMPUTE, &[], vec![on(true)]) };
    let ranks = vec![vec![parent, child, collective(&[1])]; 2];
    assert_eq!(messages(&workload(&ranks).unwrap()).len(), 2);
    // A collective on the accelerator without its type is refused.
    let silent = node(5, node_type::COLLECTIVE, &[], vec![on(false)]);
    assert!(refused(&[vec![silent]]).contains("no attribute `comm_type`"));
}

/// In an earlier version, the rank sent to itself, and the error was about hosts of flows.
#[test]
fn regression_a_process_group_has_a_rank_once() {
    let error = groups(r#"{"0": [0, 1, 2], "1": [3, 4, 3]}"#).unwrap_err();
    assert!(error.to_string().contains("process group `1` has rank 3 twice"), "{error}");
}
