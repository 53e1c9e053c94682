//! Random requests, of which most are broken. `examples/hostile_requests.rs` sends more of them.

use crate::hostile_support::{self as hostile, Outcomes, WORLD_REQUESTS};

#[test]
fn random_requests_are_answered_or_refused_and_refusals_change_nothing() {
    let mut outcomes = Outcomes::default();
    for seed in 1..=3 {
        hostile::run(seed, WORLD_REQUESTS, &mut outcomes);
    }
    // The requests reach the actions, and are not all refused for the same reason.
    assert!(outcomes.codes["ok"] > 100, "{:?}", outcomes.codes);
    assert!(outcomes.codes.len() > 20, "{:?}", outcomes.codes);
}
