//! **Control paths**: the entropies of openings, answers and acknowledgements. The receiving half
//! of a context can choose them even if there is no sending half with a table of paths.
//!
//! A firewall may pass only some source ports. Therefore the copies of an opening use one entropy
//! after another, in bursts that double, until all entropies were used. An answer uses the entropy
//! of the opening, because firewalls mostly allow the same ports in both directions.

use super::{Peer, Rx};
use crate::ids::Entropy;

/// One of this number of acknowledgements in a row uses the next entropy in rotation. The other
/// acknowledgements use the entropy of the newest received packet. Of two answers to one probe, one
/// uses the rotation.
const ROTATES_EVERY: u8 = 4;

/// Entropies of the next openings and of the next answers to openings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ControlPaths {
    /// Entropy of the next opening. After a packet has passed on a path, the next opening uses that
    /// path.
    opening: u16,
    /// Number of copies of openings that were sent since the last session, up to the number of
    /// paths.
    sent: u16,
    /// Number of copies in the present burst that are still to be sent.
    left: u16,
    /// Whether the next burst begins with a copy from the port at which we listen.
    base_next: bool,
    /// Entropy of the peer's opening, according to its source port; `None` if the port belongs to
    /// none of our entropies, or if an answer has used the entropy already.
    received_by: Option<u16>,
    /// Entropy of the next answer that does not use the entropy of the opening.
    answer: u16,
    /// Number of further answers to be sent, with the entropy `answer`.
    more_answers: u8,
}

impl ControlPaths {
    /// Whether further copies of the opening have to leave now.
    pub(crate) fn has_left(&self) -> bool {
        self.left > 0
    }

    /// Takes the entropy of the next copy of the opening. `begins`: the pause between two bursts of
    /// copies has ended, so a burst begins. Every second burst begins with a copy from the port at
    /// which we listen. A peer to which our key is unknown sends its demand for a cookie to the
    /// source port of the opening.
    pub(super) fn take_opening(&mut self, paths: u16, begins: bool) -> Entropy {
        if begins {
            // S16: Repetition of an opening
            let burst = self.sent.max(1).min(paths.saturating_sub(self.sent)).max(1);
            self.left = burst;
            self.base_next = !self.base_next;
            if !self.base_next {
                return Entropy(0);
            }
        }
        self.left = self.left.saturating_sub(1);
        self.sent = self.sent.saturating_add(1).min(paths);
        let taken = self.opening % paths;
        self.opening = (taken + 1) % paths;
        Entropy(taken)
    }

    /// Records that a packet with this entropy reached the peer. The next opening uses this entropy
    /// first.
    pub(super) fn on_passed(&mut self, entropy: Entropy) {
        self.opening = entropy.0;
        (self.sent, self.left, self.base_next) = (0, 0, false);
    }

    /// Records the source port of the peer's opening, and the port at which the peer listens.
    /// `again`: the opening was answered before, and this answer may have been lost.
    pub(crate) fn note_opening(&mut self, from: u16, listens: u16, paths: u16, again: bool) {
        self.received_by = from.checked_sub(listens).filter(|entropy| *entropy < paths);
        self.more_answers = u8::from(again || self.received_by.is_none());
    }

    /// Takes the entropy of the next answer to an opening. The second value is whether another copy
    /// of the answer must follow.
    pub(super) fn take_answer(&mut self, paths: u16) -> (Entropy, bool) {
        if let Some(entropy) = self.received_by.take() {
            return (Entropy(entropy), self.more_answers > 0);
        }
        self.more_answers = 0;
        self.answer = (self.answer + 1) % paths;
        (Entropy((self.answer + paths - 1) % paths), false)
    }
}

impl Rx {
    /// Entropy of the newest received packet; `None` if the next acknowledgement uses the rotation
    /// instead. `answers`: the acknowledgement answers a probe.
    pub(super) fn return_path(
        &mut self,
        listens: u16,
        paths: u16,
        answers: bool,
    ) -> Option<Entropy> {
        let turn = self.ack_turn;
        self.ack_turn = turn.wrapping_add(1);
        // P11: Return path of Acks
        let every = if answers { 2 } else { ROTATES_EVERY };
        // W1: Path is the source port
        let entropy = self.newest_port.checked_sub(listens).filter(|entropy| *entropy < paths)?;
        (turn % every != every - 1).then_some(Entropy(entropy))
    }
}

impl Peer {
    /// Records that the peer has acknowledged a packet with this entropy.
    pub(super) fn on_entropy_acked(&mut self, entropy: Entropy) {
        self.control_paths.on_passed(entropy);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn openings_try_every_path_in_seven_bursts_and_then_one_at_a_time() {
        let mut paths = ControlPaths::default();
        let mut bursts = Vec::new();
        let mut tried = Vec::new();
        for _ in 0..9 {
            let mut burst = 1;
            tried.push(paths.take_opening(64, true).0);
            while paths.has_left() {
                tried.push(paths.take_opening(64, false).0);
                burst += 1;
            }
            bursts.push(burst);
        }
        assert_eq!(bursts, [1, 2, 2, 5, 8, 17, 32, 2, 1], "every second one by our own port, too");
        tried.sort_unstable();
        tried.dedup();
        assert_eq!(tried, Vec::from_iter(0..64));
        paths.on_passed(Entropy(9));
        assert_eq!(paths.take_opening(64, true), Entropy(9), "what passed last is tried first");
        assert!(!paths.has_left());
    }

    #[test]
    fn an_answer_goes_back_as_the_opening_came_and_a_second_one_elsewhere() {
        let mut paths = ControlPaths::default();
        paths.note_opening(7471 + 20, 7471, 64, false);
        assert_eq!(paths.take_answer(64), (Entropy(20), false));
        paths.note_opening(7471 + 20, 7471, 64, true);
        assert_eq!(paths.take_answer(64), (Entropy(20), true));
        assert_eq!(paths.take_answer(64), (Entropy(0), false));
        paths.note_opening(7471 + 20, 7471, 64, true);
        paths.take_answer(64);
        assert_eq!(paths.take_answer(64), (Entropy(1), false), "each time another");
        paths.note_opening(50_000, 7471, 64, false);
        assert_eq!(paths.take_answer(64), (Entropy(2), false), "behind an address translator");
    }
}
