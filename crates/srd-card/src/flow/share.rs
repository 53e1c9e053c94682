//! A limit that peers share so that no peer can take all of it. // O5
//!
//! Half of the limit belongs to the peers in equal parts, which no other peer can take. The other
//! half goes to the peers that request it first. A single peer may have the whole limit. A peer
//! that holds nothing may take any amount that is free in the whole limit: with many peers, its
//! part may be smaller than one frame.
//!
//! Bound: the limit itself, and one number per peer.

use alloc::vec::Vec;

/// Amounts of one limit that the peers hold.
#[derive(Debug)]
pub(crate) struct Shares {
    max: usize,
    peers: usize,
    /// Amount that each peer holds, by the peer's slot.
    held: Vec<usize>,
    total: usize,
    /// Sum of the amounts that peers hold beyond their own parts.
    beyond: usize,
}

impl Shares {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, peers: 1, held: Vec::new(), total: 0, beyond: 0 }
    }

    /// Sets the number of peers that share the limit. A peer keeps the amount that it holds.
    pub(crate) fn set_peers(&mut self, peers: usize) {
        self.peers = peers.max(1);
        let own = self.own();
        self.beyond = self.held.iter().map(|held| held.saturating_sub(own)).sum();
    }

    /// Amount of each peer if all of the limit were divided into equal parts.
    pub(crate) fn equal_part(&self) -> usize {
        self.max / self.peers
    }

    /// Amount that is reserved for each peer.
    fn own(&self) -> usize {
        self.max / 2 / self.peers
    }

    /// Number of units by which the peer's excess over its own part would increase if the peer took
    /// `amount` more.
    fn more_beyond(&self, peer: u32, amount: usize) -> usize {
        let (held, own) = (self.held(peer), self.own());
        (held + amount).saturating_sub(own) - held.saturating_sub(own)
    }

    /// Whether a peer may take `amount`. A peer that holds at most `beside` counts as one that
    /// holds nothing.
    pub(crate) fn has_room(&self, peer: u32, amount: usize, beside: usize) -> bool {
        let more = self.more_beyond(peer, amount);
        let common = self.max - self.own() * self.peers;
        let within = more == 0 || self.held(peer) <= beside || self.beyond + more <= common;
        within && self.total + amount <= self.max
    }

    /// Takes `amount` for a peer. Returns whether the peer may have it.
    pub(crate) fn take(&mut self, peer: u32, amount: usize) -> bool {
        self.take_beside(peer, amount, 0)
    }

    /// Takes `amount` for a peer, which counts as one that holds nothing if it holds at most
    /// `beside`.
    pub(crate) fn take_beside(&mut self, peer: u32, amount: usize, beside: usize) -> bool {
        if !self.has_room(peer, amount, beside) {
            return false;
        }
        self.beyond += self.more_beyond(peer, amount);
        let index = peer as usize;
        if self.held.len() <= index {
            self.held.resize(index + 1, 0);
        }
        self.held[index] += amount;
        self.total += amount;
        true
    }

    /// Releases an amount that a peer took earlier.
    pub(crate) fn give_back(&mut self, peer: u32, amount: usize) {
        let own = self.own();
        let Some(held) = self.held.get_mut(peer as usize) else { return };
        let before = held.saturating_sub(own);
        *held -= amount;
        self.beyond -= before - held.saturating_sub(own);
        self.total -= amount;
    }

    /// Amount that a peer holds.
    pub(crate) fn held(&self, peer: u32) -> usize {
        self.held.get(peer as usize).copied().unwrap_or(0)
    }

    /// Whether a peer has used up its own part.
    pub(crate) fn is_beyond(&self, peer: u32) -> bool {
        let held = self.held(peer);
        held > 0 && held >= self.own()
    }

    /// Peer that holds the largest amount; `None` if no peer holds anything.
    pub(crate) fn largest(&self) -> Option<u32> {
        let most = (0u32..).zip(&self.held).max_by_key(|(_, held)| **held);
        most.filter(|(_, held)| **held > 0).map(|(peer, _)| peer)
    }

    /// Amount that all peers hold.
    #[cfg(test)]
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Part of the limit that is in use, in percent.
    pub(crate) fn utilization(&self) -> u64 {
        (self.total * 100 / self.max.max(1)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes units until one is refused, and returns their number.
    fn fill(shares: &mut Shares, peer: u32) -> usize {
        (0..).take_while(|_| shares.take(peer, 1)).count()
    }

    #[test]
    fn a_single_peer_may_have_everything() {
        let mut shares = Shares::new(100);
        assert_eq!(fill(&mut shares, 7), 100);
        assert_eq!((shares.total(), shares.utilization()), (100, 100));
    }

    #[test]
    fn a_greedy_peer_leaves_each_other_peer_its_part() {
        let mut shares = Shares::new(100);
        shares.set_peers(5);
        assert_eq!(fill(&mut shares, 0), 60, "its own tenth, and the common half");
        for peer in 1..5 {
            assert_eq!(fill(&mut shares, peer), 10);
        }
        shares.give_back(0, 60);
        assert_eq!(fill(&mut shares, 3), 50, "what the greedy one gave back");
    }

    #[test]
    fn a_peer_that_holds_nothing_may_take_more_than_its_part_at_once() {
        let mut shares = Shares::new(100);
        shares.set_peers(50);
        assert_eq!(fill(&mut shares, 0), 51);
        assert!(shares.take(1, 40) && !shares.take(1, 1));
        assert!(!shares.take(2, 40), "there is no room for it");
    }

    proptest! {
        #[test]
        fn sums_stay_right_and_within_the_limit(
            steps in prop::collection::vec((0u32..4, 0usize..40, 1usize..6), 0..200),
        ) {
            let mut shares = Shares::new(100);
            for (peer, amount, peers) in steps {
                shares.set_peers(peers);
                if !shares.take(peer, amount) {
                    shares.give_back(peer, shares.held(peer));
                }
                let total: usize = (0..4).map(|peer| shares.held(peer)).sum();
                prop_assert_eq!(total, shares.total());
                prop_assert!(total <= 100);
                let own = shares.own();
                let beyond: usize = (0..4).map(|p| shares.held(p).saturating_sub(own)).sum();
                prop_assert_eq!(beyond, shares.beyond);
            }
        }
    }
}
