//! Replays the fuzzer's corpus of the card on a stable toolchain, through the same function.

use crate::{bodies, seeds};

#[test]
fn seeds_of_guests_and_peers_that_write_what_they_like_replay() {
    assert!(seeds::replay("card", bodies::card) >= 5, "the seeds are there");
}
