//! The peers, with the ready queue that `poll_transmit` walks and the wake-ups.

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::config::Config;
use crate::credit::{Share, Shares};
use crate::ids::PeerId;
use crate::peer::Peer;
use crate::time::{Duration, Instant};

/// When to look again at something that was due and could not be done.
const RETRY_AFTER: Duration = Duration::from_micros(10);

/// The heap may hold two entries for each peer and this many more; beyond that, outdated entries
/// are removed.
const WAKES_SPARE: usize = 16;

/// The peers, with what `poll_transmit` and `poll_timeout` walk.
#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) slots: Vec<Option<Box<Peer>>>,
    pub(super) ready: VecDeque<PeerId>,
    /// When each peer has to be polled. Only the entry that equals the peer's `wake_at` is valid;
    /// the others are outdated, and removed when there are more of them than valid ones.
    wakes: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Peers {
    /// The peer of this name, unless it has been forgotten.
    pub(super) fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.at(id.index()).filter(|peer| peer.id == id)
    }

    /// The peer in a slot, whatever its generation.
    pub(super) fn at(&mut self, index: u32) -> Option<&mut Peer> {
        self.slots.get_mut(index as usize)?.as_deref_mut()
    }

    /// As [`Peers::peer`], to look only.
    pub(super) fn look(&self, id: PeerId) -> Option<&Peer> {
        self.slots.get(id.slot())?.as_deref().filter(|peer| peer.id == id)
    }

    /// Puts a peer into the ready queue, once.
    pub(super) fn make_ready(&mut self, id: PeerId) {
        if let Some(peer) = self.peer(id)
            && !peer.queued_ready
        {
            peer.queued_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Puts a peer at the head of the ready queue, unless it is in it.
    pub(super) fn make_next(&mut self, id: PeerId) {
        if let Some(peer) = self.peer(id)
            && !peer.queued_ready
        {
            peer.queued_ready = true;
            self.ready.push_front(id);
        }
    }

    /// When the first peer has to be polled.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.wakes.peek().map(|Reverse((at, _))| *at)
    }

    /// The next peer that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<PeerId> {
        while let Some(&Reverse((at, index))) = self.wakes.peek().filter(|next| next.0.0 <= now) {
            self.wakes.pop();
            if let Some(peer) = self.at(index).filter(|peer| peer.wake_at == at) {
                peer.wake_at = Instant::FAR_FUTURE;
                return Some(peer.id);
            }
        }
        None
    }

    /// Takes a peer out.
    pub(super) fn take(&mut self, id: PeerId) -> Option<Box<Peer>> {
        self.look(id)?;
        self.slots[id.slot()].take()
    }

    /// Makes sure that a peer is woken in time. One that is woken too early finds out by itself
    /// that nothing is due, so a later time need not be noted. What a packet or a sending changes
    /// waits until the peer's turn in the ready queue finds nothing to send.
    pub(super) fn schedule(&mut self, id: PeerId, now: Instant, config: &Config) {
        if let Some(peer) = self.peer(id) {
            let mut at = peer.next_timeout(config);
            if at <= now {
                // E9. What is due is something to send. While the peer is in the ready queue,
                // `poll_transmit` sees to it; if it could not, it tries again shortly.
                if peer.queued_ready {
                    return;
                }
                at = now + RETRY_AFTER;
            }
            if at < peer.wake_at {
                peer.wake_at = at;
                self.wakes.push(Reverse((at, id.index())));
                self.tidy_wakes();
            }
        }
    }
}

#[cfg(debug_assertions)]
impl Peers {
    /// Every wake-up, by time and slot.
    pub(super) fn wakes(&self) -> alloc::collections::BTreeSet<(Instant, u32)> {
        self.wakes.iter().map(|Reverse(wake)| *wake).collect()
    }
}

impl Peers {
    /// Removes outdated entries, if there are many.
    fn tidy_wakes(&mut self) {
        let Self { slots, wakes, .. } = self;
        if wakes.len() <= 2 * slots.len() + WAKES_SPARE {
            return;
        }
        wakes.retain(|Reverse((at, index))| {
            let peer = slots.get(*index as usize).and_then(Option::as_ref);
            peer.is_some_and(|peer| peer.wake_at == *at)
        });
    }
}

impl Shares for Peers {
    fn share(&mut self, id: PeerId) -> Option<&mut Share> {
        Some(&mut self.peer(id)?.rx.as_mut()?.share)
    }

    fn announce(&mut self, id: PeerId) {
        if let Some(rx) = self.peer(id).and_then(|p| p.rx.as_mut()) {
            rx.ack_now = true;
        }
        self.make_ready(id);
    }
}
