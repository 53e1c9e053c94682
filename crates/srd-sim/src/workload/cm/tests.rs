use proptest::prelude::*;

use super::*;
use crate::engine::topology::clos::{ClosSpec, Links};

const GOOD: &str = "
# two stages
Nodes 128
Connections 3
Triggers 2
Failures 1
0->1 id 1 start 1.5 size 2097152 send_done_trigger 7
2->3 id 2 trigger 7 size 4294967296 prio 3 recv_done_trigger 9
4->5 trigger 9 size 1
trigger id 7 oneshot
trigger id 9 barrier count 2
failure switch_type AGG switch_id 1 link_id 2
";

#[test]
fn flows_triggers_and_failures_are_read() {
    let matrix = parse(GOOD, TimeUnit::Microseconds).unwrap();
    let flows = &matrix.workload.flows;
    assert_eq!(flows[0].start, Start::At(1_500_000));
    assert_eq!((flows[0].label, flows[0].bytes), (1, 2_097_152));
    assert_eq!(flows[0].sent_trigger, Some(TriggerId(0)));
    assert_eq!(flows[1].start, Start::On(TriggerId(0)));
    assert_eq!((flows[1].bytes, flows[1].received_trigger), (1 << 32, Some(TriggerId(1))));
    assert_eq!(matrix.workload.triggers, [TriggerKind::OneShot, TriggerKind::Barrier(2)]);
    let links = Links { host_bps: 1, up_bps: 1, latency_ps: 1, switch_latency_ps: 0, bundle: 1 };
    let tree = ClosSpec::fat_tree(8, [1, 1], &links).build().unwrap();
    assert_eq!(matrix.failures[0].link_name(&tree).unwrap(), "agg1-core9");
    let spine = ClosSpec::leaf_spine(2, 2, 2, &links).build().unwrap();
    assert_eq!(
        matrix.failures[0].link_name(&spine).unwrap_err().to_string(),
        "line 12: spine1 has 2 links"
    );
}

/// Regression: a matrix for more hosts than the network has was run without a word if its flows
/// used only the first hosts.
#[test]
fn regression_a_matrix_for_a_larger_network_is_refused_with_its_line() {
    let text = "# a part of a run\nNodes 128\nConnections 1\n0->1 start 0 size 1";
    let matrix = parse(text, TimeUnit::Picoseconds).unwrap();
    assert_eq!(matrix.check_hosts(128), Ok(()));
    assert_eq!(matrix.check_hosts(129), Ok(()));
    let error = matrix.check_hosts(127).unwrap_err().to_string();
    assert!(
        error.starts_with("line 2: the file says `Nodes 128`, but the network has 127"),
        "{error}"
    );
}

#[test]
fn unit_of_time_is_the_callers() {
    let text = "Nodes 2\nConnections 1\n0->1 start 250 size 1";
    let at = |unit| parse(text, unit).unwrap().workload.flows[0].start;
    assert_eq!(at(TimeUnit::Picoseconds), Start::At(250));
    assert_eq!(at(TimeUnit::Microseconds), Start::At(250_000_000));
}

#[test]
fn bad_lines_are_refused_with_number_and_reason() {
    let refuse = |text: &str, expected: &str| {
        let error = parse(text, TimeUnit::Microseconds).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    refuse("Connections 0", "the file has no `Nodes`");
    refuse(
        "Nodes 2\nConnections 1\n0->1 start 0 size 0",
        "line 3: `size` 0 is a flow without an end",
    );
    refuse("Nodes 2\nNodes 4", "line 2: `Nodes` is given twice: keep one");
    refuse(
        "Nodes 2 Connections 1",
        "line 1: one number belongs after `Nodes`: write each count on",
    );
    refuse(
        "Nodes 2\nConnections 0\n0->1 start 0 size 1",
        "the file says `Connections 0`, but has 1: write `Connections 1`",
    );
    refuse("Nodes 2\nConnections 2\n0->1 start 0 size 1", "the file says `Connections 2`, but");
    refuse("Nodes 2\n0->1 start 0 size 1", "the file has no `Connections`");
    refuse("Nodes 2\nConnections 1\n0->2 start 0 size 1", "line 3: host 2");
    refuse("Nodes 2\nConnections 1\n0->1 size 1", "line 3: neither");
    refuse("Nodes 2\nConnections 1\n0->1 start -1 size 1", "line 3: `start` is -1");
    refuse("Nodes 2\nConnections 1\n0->1 start 0 size 1e6", "line 3: `1e6` is not");
    refuse("Nodes 2\nConnections 1\n0->1 start 0 size", "line 3: `size` needs");
    refuse("Nodes 2\nConnections 1\n0->0 start 0 size 1", "line 3: host 0 sends to itself");
    refuse("Nodes 2\nConnections 1\n0->1 start 0 size 1 msg 4", "line 3: `msg`");
    refuse("Nodes 2\nConnections 1\n0->1 trigger 3 size 1", "trigger 3 is used");
    refuse("Nodes 2\ntrigger id 1 barrier", "line 2: a barrier needs");
    refuse("Nodes 2\ntrigger id 1 oneshot\ntrigger id 1 oneshot", "line 3: trigger 1 is");
    refuse("Nodes 2 3", "line 1: one number");
    refuse("Nodes", "line 1: `Nodes` needs");
    refuse("hello", "line 1: `hello` begins no line");
    refuse("failure switch_type X", "line 1: switch type `X`");
}

proptest! {
    #[test]
    fn garbage_never_panics(
        lines in proptest::collection::vec(
            proptest::sample::select(vec![
                "Nodes 4", "Connections 1", "Triggers 1", "0->1", "start 1", "size 3", "\n",
                "trigger", "id 1", "oneshot", "barrier count 2", "failure", "switch_id", "9",
                "switch_type AGG", "->", "start nan", "size 99999999999999999999", "msg", "-1",
            ]),
            0..30,
        ),
    ) {
        let _ = parse(&lines.join(" "), TimeUnit::Picoseconds);
        let _ = parse(&lines.join("\n"), TimeUnit::Microseconds);
    }

    #[test]
    fn any_text_never_panics(text in "\\PC{0,200}") {
        let _ = parse(&text, TimeUnit::Microseconds);
    }
}
