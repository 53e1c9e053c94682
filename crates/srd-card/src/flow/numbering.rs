//! Numbers of a flow that is sent over SRD: the peer identifies the flow by a flow number, and a
//! sequence number counts the frames sent under this flow number. They are a column of the flow
//! table.

use srd_proto::time::{Duration, Instant};

use crate::wire::frame::FLOW_NUMBERS;

/// Silence after which a flow takes a new number, because the receiver may have removed the old
/// number.
const RENUMBER_AFTER: Duration = Duration::from_secs(60);

/// Flow number and sequence number under which a flow is sent to its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbering {
    /// Peer in whose queue the flow's frames wait.
    pub(crate) peer: u32,
    /// Flow number in the packets; `None` until the next frame over SRD takes a new number.
    number: Option<u32>,
    /// Sequence number of the next frame.
    sequence: u16,
    /// Generation of the peer when the number was taken.
    generation: u64,
    sent_at: Instant,
}

/// Allocator of flow numbers.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: u32,
}

impl Numbers {
    /// Begins at a random number: a restarted card must not use numbers that its peers still keep.
    pub(crate) fn new(word: u64) -> Self {
        #[allow(clippy::cast_possible_truncation)] // masked
        let next = (word >> 13) as u32 & (FLOW_NUMBERS - 1);
        Self { next }
    }

    fn take(&mut self) -> u32 {
        let number = self.next;
        self.next = (number + 1) % FLOW_NUMBERS;
        number
    }
}

impl Numbering {
    /// Moves the flow to the queue of another peer, where it has no number yet.
    pub(crate) fn move_to(&mut self, peer: u32) {
        *self = Self { peer, ..Self::default() };
    }

    /// Drops the number after the loss of a frame: the receiver would wait for this frame under
    /// the old number. // F4
    pub(crate) fn renumber(&mut self) {
        self.number = None;
    }

    /// Returns the flow number and the sequence number of the flow's next frame. The flow takes a
    /// new number if it was silent for too long, or if `generation`, the present generation of its
    /// peer, has changed.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        generation: u64,
        numbers: &mut Numbers,
    ) -> (u32, u16) {
        let silent = now.since(self.sent_at) > RENUMBER_AFTER;
        let number = match self.number {
            Some(number) if self.generation == generation && !silent => number,
            // F4: Flow numbers
            _ => {
                let number = numbers.take();
                (self.number, self.sequence, self.generation) = (Some(number), 0, generation);
                number
            }
        };
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        self.sent_at = now;
        (number, sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_takes_a_new_number_after_silence_loss_and_with_another_generation() {
        let mut numbers = Numbers::new(u64::MAX);
        let mut flow = Numbering::default();
        let start = Instant::ZERO + Duration::from_secs(100);
        let at = |seconds| start + Duration::from_secs(seconds);
        let last = FLOW_NUMBERS - 1;
        assert_eq!(flow.next(start, 1, &mut numbers), (last, 0));
        assert_eq!(flow.next(at(60), 1, &mut numbers), (last, 1), "not silent for too long");
        assert_eq!(flow.next(at(121), 1, &mut numbers), (0, 0), "numbers begin anew, too");
        assert_eq!(flow.next(at(121), 2, &mut numbers), (1, 0));
        flow.renumber();
        assert_eq!(flow.next(at(121), 2, &mut numbers), (2, 0));
        flow.move_to(7);
        assert_eq!((flow.next(at(121), 2, &mut numbers), flow.peer), ((3, 0), 7));
    }
}
