//! Random choice of the key and the kind of each request.

use super::protocol::{KEYS, Kind};
use srd_lab::random::Random;

/// One of this number of requests is a SET; the other requests are GETs.
const SET_ONE_IN: usize = 5;

/// Returns a random one of the existing keys.
pub(super) fn key(random: &mut Random) -> u32 {
    u32::try_from(random.below(KEYS as usize)).unwrap_or(0)
}

/// Returns a random kind of request: GET in four of five cases, and otherwise SET.
pub(super) fn kind(random: &mut Random) -> Kind {
    if random.below(SET_ONE_IN) == 0 { Kind::Set } else { Kind::Get }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_five_is_a_set_and_a_seed_repeats() {
        let sets = |seed| {
            let mut random = Random::new(seed);
            (0..10_000).filter(|_| kind(&mut random) == Kind::Set).count()
        };
        assert!((1850..2150).contains(&sets(1)), "{}", sets(1));
        assert_eq!(sets(3), sets(3));
        assert!((0..1000).all(|seed| key(&mut Random::new(seed)) < KEYS));
    }
}
