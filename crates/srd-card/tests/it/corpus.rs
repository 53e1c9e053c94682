//! Replays the corpus of the card's fuzz target on a stable toolchain, through the function that
//! the fuzzer calls.

use crate::{bodies, seeds};

#[test]
fn seeds_of_guests_and_peers_that_write_what_they_like_replay() {
    assert!(seeds::replay("card", bodies::card) >= 5, "the seeds are there");
}
