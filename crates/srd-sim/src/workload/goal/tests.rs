//! Tests of GOAL as text: valid files, and files that are refused.

use super::write::Collective;
use super::*;
use crate::workload::{FlowPlan, Start};

const HOSTS: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

fn read(text: &str) -> Workload {
    parse(text, &HOSTS).unwrap()
}

fn refused(text: &str) -> String {
    parse(text, &HOSTS).unwrap_err().to_string()
}

#[test]
fn operations_waits_and_messages_are_read() {
    let workload = parse(
        "num_ranks 2 // two\nrank 0 {\nl2: send 1024b to 1 tag 7 cpu 0 nic 1\n\
         l1: calc 100 cpu 3\nl2 requires l1\ncalc 5\n}\n\
         rank 1 { l1: recv 2048b from 0 tag 7\n a: calc 1 a irequires l1 }",
        &[5, 9],
    )
    .unwrap();
    let mut plan = FlowPlan::at(0, 5, 9, 1024);
    plan.start = Start::Scheduled;
    assert_eq!(workload.flows, [plan]);
    let schedule = workload.schedule.unwrap();
    let what: Vec<Action> = schedule.operations.iter().map(|operation| operation.what).collect();
    let expected = [
        Action::Send { flow: 0 },
        Action::Calculate { ps: 100_000, cpu: 3 },
        Action::Calculate { ps: 5000, cpu: 0 },
        Action::Receive { flow: 0 },
        Action::Calculate { ps: 1000, cpu: 0 },
    ];
    assert_eq!(what, expected);
    assert_eq!(schedule.after_end, [Wait { later: 0, earlier: 1 }]);
    assert_eq!(schedule.after_begin, [Wait { later: 4, earlier: 3 }]);
}

#[test]
fn equal_messages_are_taken_in_their_order() {
    let workload = read(
        "num_ranks 2\nrank 1 {\nrecv 30b from 0\nrecv 10b from 0 tag 1\nrecv 50b from 0\n}\n\
         rank 0 {\nsend 10b to 1 tag 1\nsend 20b to 1\nsend 40b to 1\n}\n",
    );
    let bytes: Vec<u64> = workload.flows.iter().map(|flow| flow.bytes).collect();
    assert_eq!(bytes, [10, 20, 40]);
    let what: Vec<Action> = workload.schedule.unwrap().operations.iter().map(|o| o.what).collect();
    let receives = [1, 0, 2].map(|flow| Action::Receive { flow });
    assert_eq!(what[..3], receives);
}

#[test]
fn messages_to_oneself_need_no_network_and_empty_ones_a_byte() {
    let own = read("num_ranks 1\nrank 0 {\na: send 9b to 0\nb: recv 9b from 0\n}");
    assert!(own.flows.is_empty());
    let waits = own.schedule.unwrap().after_begin;
    assert_eq!(waits, [Wait { later: 1, earlier: 0 }]);
    let empty = read("num_ranks 2\nrank 0 { send 0b to 1 }\nrank 1 { recv 0b from 0 }");
    assert_eq!(empty.flows[0].bytes, 1);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, said) in [
        ("", "the file ends where `num_ranks`"),
        ("num_ranks 9", "9 ranks, but the network has 8 hosts"),
        ("num_ranks 2\nrank 2 {", "line 2: rank 2, but `num_ranks` is 2"),
        ("num_ranks 2\nrank 0 {\n}\nrank 0 {}", "line 4: rank 0 is described twice"),
        ("num_ranks 2\nrank 0 {\ncalc 1", "line 3: the file ends where an operation or `}`"),
        ("num_ranks 2\nrank 0 {\nput 1b to 1 }", "line 3: `1` after `put`"),
        ("num_ranks 2\nrank 0 {\na: calc 1\na: calc 2 }", "line 4: rank 0 has two operations `a`"),
        ("num_ranks 2\nrank 0 {\na: calc 1\nb requires a }", "line 4: rank 0 has no operation `b`"),
        ("num_ranks 2\nrank 0 {\nsend 1 to 1 }", "line 3: `to` stands where `b` should"),
        ("num_ranks 2\nrank 0 {\nsend 1b to 5 }", "line 3: rank 5, but"),
        ("num_ranks 2\nrank 0 {\nsend 1b to 1 }", "line 3: no receive fits this send"),
        ("num_ranks 2\nrank 0 {\nrecv 1b from 1 }", "line 3: no send fits this receive"),
        ("num_ranks 2\nrank 0 {\nrecv 1b from -1 }", "line 3: -1 stands for any"),
        (
            "num_ranks 2\nrank 0 { send 8b to 1 }\nrank 1 { recv 7b from 0 }",
            "line 3: 8 bytes of line 2 do not fit",
        ),
        ("num_ranks 2\nrank 0 { calc 99999999999999999 }", "above 86400000000000"),
        ("num_ranks 2\nrank 0 {}", "no rank has an operation"),
        ("num_ranks 2\nrank 0 { # }", "line 2: `#` is no part of GOAL"),
        (
            "num_ranks 2\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb irequires a }",
            "line 3: this operation and others wait for each other",
        ),
        (
            "num_ranks 2\nrank 0 {\na: recv 1b from 1\nb: send 1b to 1\nb requires a }\n\
             rank 1 {\na: recv 1b from 0\nb: send 1b to 0\nb requires a }",
            "wait for each other",
        ),
    ] {
        let error = refused(text);
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    for (collective, name) in Collective::ALL {
        for ranks in [2, 8] {
            let workload = read(&collective.write(ranks, 4096).unwrap());
            let per_rank = match collective {
                Collective::RingAllReduce => 2 * (ranks - 1),
                Collective::AllToAll => ranks - 1,
                Collective::DoublingAllReduce | Collective::Barrier => ranks.ilog2(),
            };
            assert_eq!(workload.flows.len(), (ranks * per_rank) as usize, "{name}");
        }
        assert!(collective.write(1, 1).is_err() && collective.write(2, 0).is_err(), "{name}");
    }
    assert!(Collective::DoublingAllReduce.write(6, 1).unwrap_err().contains("power of two"));
    let three = read(&Collective::Barrier.write(3, 1).unwrap());
    assert_eq!(three.flows.len(), 6);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(num_ranks [0-9] )?([a-z0-9:{}/* \n-]{0,120})") {
        let _ = parse(&text, &HOSTS);
    }

    #[test]
    fn no_order_of_words_makes_the_reader_panic(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "rank 0 {", "}", "l1: ", "l2: ", "calc 5 ", "send 4b to 1 ", "recv 4b from 1 ",
                "send 3b to 0 ", "recv 3b from 0 ", "tag 1 ", "l1 requires l2 ", "rank 1 {",
                "l2 irequires l1 ", "cpu 2 ", "\n",
            ]),
            0..40,
        ),
    ) {
        let _ = parse(&format!("num_ranks 2 {}", words.concat()), &HOSTS);
    }
}
