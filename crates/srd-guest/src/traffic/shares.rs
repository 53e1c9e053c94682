//! Shares of tenants in the queue from one worker to another (W4 of `docs/spec/card.md`).
//!
//! A frame counts to an interface of an instance, or to a NAT gateway: its owner. An owner may hold
//! as much of a queue as is free. So one owner alone holds at most half of the queue, and if `n`
//! owners send too much, each holds the part `1/(n+1)`. A further owner finds as much space as each
//! of them has.
//!
//! Bounds: [`FRAMES_MAX`] frames of together [`BYTES_MAX`] bytes, and not more owners than frames.

use std::collections::HashMap;

use srd_card::vpc::Envelope;
use srd_vpc::id::{EniId, NatGatewayId};

/// Maximum number of frames in a queue.
pub(crate) const FRAMES_MAX: usize = 4096;
/// Maximum number of bytes of the frames in a queue. A queue without frames takes a frame of any
/// size.
pub(crate) const BYTES_MAX: usize = 8 << 20;

/// The object to which a frame counts between two workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Owner {
    Interface(EniId),
    NatGateway(NatGatewayId),
}

impl Owner {
    /// Returns the owner of a frame that an instance of this worker sends: the interface that sends
    /// it.
    pub(crate) fn that_sends(envelope: &Envelope) -> Self {
        Self::Interface(match *envelope {
            Envelope::Between { from, .. }
            | Envelope::Translated { from, .. }
            | Envelope::ToNat { from, .. }
            | Envelope::Leaving { from, .. }
            | Envelope::ByNat { from, .. } => from,
            Envelope::FromNat { to, .. } => to,
            Envelope::Arriving => EniId(0),
        })
    }

    /// Returns the owner of a frame that another host sends: the object that receives it. That host
    /// could name any number of interfaces as senders.
    pub(crate) fn that_receives(envelope: &Envelope) -> Self {
        match *envelope {
            Envelope::Between { to, .. }
            | Envelope::Translated { to, .. }
            | Envelope::FromNat { to, .. } => Self::Interface(to),
            Envelope::ToNat { nat, .. } => Self::NatGateway(nat),
            Envelope::Leaving { .. } | Envelope::ByNat { .. } | Envelope::Arriving => {
                Self::Interface(EniId(0))
            }
        }
    }
}

/// Frames, and their bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Amount {
    frames: usize,
    bytes: usize,
}

impl Amount {
    fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes;
    }
}

/// The parts of a queue that its owners hold. Successive frames usually have one owner, whose part
/// is not in the map.
#[derive(Default, Debug)]
pub(crate) struct Shares {
    all: Amount,
    last: Option<Owner>,
    of_last: Amount,
    of_others: HashMap<Owner, Amount>,
}

impl Shares {
    /// Counts a frame. Returns false, without counting it, if its owner may hold no more.
    #[inline]
    pub(crate) fn take(&mut self, owner: Owner, bytes: usize) -> bool {
        if self.last != Some(owner) {
            self.change_to(owner);
        }
        let frames_free = FRAMES_MAX.saturating_sub(self.all.frames);
        let bytes_free = BYTES_MAX.saturating_sub(self.all.bytes);
        let held = &mut self.of_last;
        let has_room = held.frames < frames_free && held.bytes + bytes <= bytes_free;
        if !has_room && self.all.frames > 0 {
            return false;
        }
        held.add(bytes);
        self.all.add(bytes);
        true
    }

    fn change_to(&mut self, owner: Owner) {
        let held = self.of_others.remove(&owner).unwrap_or_default();
        let held = std::mem::replace(&mut self.of_last, held);
        if let Some(last) = self.last.replace(owner)
            && held.frames > 0
        {
            self.of_others.insert(last, held);
        }
    }

    /// Counts nothing any more: the queue has no frames.
    pub(crate) fn clear(&mut self) {
        (self.all, self.of_last) = (Amount::default(), Amount::default());
        self.of_others.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: usize) -> Owner {
        Owner::Interface(EniId(number as u64))
    }

    /// Returns how many frames of this size each of several owners holds, if each sends without
    /// end, in turn.
    fn held(owners: usize, bytes: usize) -> Vec<usize> {
        let (mut shares, mut held) = (Shares::default(), vec![0; owners]);
        for _ in 0..2 * FRAMES_MAX {
            for (number, held) in held.iter_mut().enumerate() {
                *held += usize::from(shares.take(owner(number), bytes));
            }
        }
        held
    }

    #[test]
    fn owners_that_send_too_much_have_equal_parts_and_leave_one_for_another() {
        assert_eq!(held(1, 64), [FRAMES_MAX / 2]);
        for owners in [2, 3, 7, 63] {
            let part = FRAMES_MAX / (owners + 1);
            let held = held(owners, 64);
            assert!(held.iter().all(|held| held.abs_diff(part) <= 1), "{owners}: {held:?}");
        }
        // Large frames reach the bound of bytes first.
        let bytes = 64 << 10;
        assert_eq!(held(1, bytes), [BYTES_MAX / bytes / 2]);
        assert!(held(3, bytes).iter().all(|held| held.abs_diff(BYTES_MAX / bytes / 4) <= 1));
    }

    #[test]
    fn an_owner_that_begins_later_has_its_part_at_once_and_owners_are_bounded() {
        let mut shares = Shares::default();
        while shares.take(owner(0), 64) {}
        let of_second = (0..FRAMES_MAX).filter(|_| shares.take(owner(1), 64)).count();
        assert_eq!(of_second, FRAMES_MAX / 4, "half of what the first one has left");
        for number in 2..3 * FRAMES_MAX {
            shares.take(owner(number), 64);
        }
        assert!(shares.all.frames <= FRAMES_MAX);
        assert!(shares.of_others.len() <= shares.all.frames);
        shares.clear();
        assert!(shares.take(owner(0), BYTES_MAX + 1), "a queue without frames takes it");
        assert!(!shares.take(owner(1), 1));
        shares.clear();
        assert!(shares.of_others.is_empty() && shares.take(owner(1), 1));
    }

    #[test]
    fn frames_of_this_host_count_to_their_senders_and_others_to_their_receivers() {
        let (from, to, nat) = (EniId(1), EniId(2), NatGatewayId(3));
        let between = Envelope::Between { from, to };
        assert_eq!(Owner::that_sends(&between), Owner::Interface(from));
        assert_eq!(Owner::that_receives(&between), Owner::Interface(to));
        let to_nat = Envelope::ToNat { from, nat };
        assert_eq!(Owner::that_sends(&to_nat), Owner::Interface(from));
        assert_eq!(Owner::that_receives(&to_nat), Owner::NatGateway(nat));
    }
}
