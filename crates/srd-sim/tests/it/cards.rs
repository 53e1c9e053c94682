//! Cards of hosts in the simulated network: more connections than a card has entries for flows.

use crate::scenarios::result;
use srd_sim::report;
use srd_sim::run::RunResult;
use srd_sim::scenario::Transport;

/// Opens `connections` new connections with a request of 600 bytes from each of eight hosts to host
/// 0, through cards whose tables have `flows_max` entries. One connection begins in each
/// microsecond.
fn requests(connections: u32, flows_max: u32) -> RunResult {
    let senders = [20, 24, 36, 40, 52, 56, 68, 72];
    let one = |n: u32| {
        let from = senders[n as usize % senders.len()];
        format!(r#"{{kind="pairs",pairs=[[{from},0]],bytes=600,start_us={n}.0}}"#)
    };
    let all: Vec<_> = (0..connections * 8).map(one).collect();
    let workload = format!("workload=[{}]", all.join(","));
    let entries = format!("card.flows_max={flows_max}");
    result("paper-a-express", &[&workload, &entries], Transport::Express)
}

#[test]
fn regression_more_new_connections_than_a_card_has_entries_wait_for_no_timeout() {
    let (few, many) = (requests(20, 64), requests(20, 65_536));
    for result in [&few, &many] {
        assert_eq!(result.complaints(), Vec::<String>::new());
        assert_eq!((result.flows, result.drops, result.sent.timeouts), (160, 0, 0));
        assert!(result.card_drops.as_ref().unwrap().values().all(|dropped| *dropped == 0));
    }
    // Frames of connections without an entry take one path each, but wait for nothing.
    assert!(few.fct_us.max < 2.0 * many.fct_us.max, "{:?} {:?}", few.fct_us, many.fct_us);
}

#[test]
fn what_cards_drop_is_in_the_results() {
    // No frame of several chunks has room, so the guests' timeouts divide what they send.
    let sets = ["workload.0.bytes=64KiB", "card.receive_bytes_max=1000"];
    let run = |sets: &[&str], transport| result("paper-a-express", sets, transport);
    let result = run(&sets, Transport::Express);
    let dropped = result.card_drops.as_ref().unwrap()["order_full"];
    assert!(dropped > 0);
    let table = report::table(std::slice::from_ref(&result));
    assert!(table.contains(&format!("dropped by cards: order_full {dropped}")), "{table}");
    assert_eq!(run(&sets[..1], Transport::Tcp).card_drops, None);
}
