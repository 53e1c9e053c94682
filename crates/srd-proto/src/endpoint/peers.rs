//! The peers, with the ready queue of `poll_transmit` and the wake-ups.

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::config::Config;
use crate::ids::PeerId;
use crate::peer::Peer;
use crate::send::credit::{Share, Shares};
use crate::time::{Duration, Instant};

/// Time after which a peer with a timer that is due, which could not send, is polled again.
const RETRY_AFTER: Duration = Duration::from_micros(10);

/// Number of entries that the heap of wake-ups may hold in addition to two for each peer. Beyond
/// that, outdated entries are removed.
const WAKES_SPARE: usize = 16;

/// The peers of an endpoint, with their ready queue and wake-ups.
#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) slots: Vec<Option<Box<Peer>>>,
    pub(super) ready: VecDeque<PeerId>,
    /// Times when peers have to be polled. Only the entry that equals the peer's `wake_at` is
    /// valid; the other entries are outdated, and removed when there are more outdated than valid
    /// entries.
    wakes: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Peers {
    /// The peer with this identifier, unless it was removed.
    pub(super) fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.at(id.index()).filter(|peer| peer.id == id)
    }

    /// The peer in a slot, whatever its generation.
    pub(super) fn at(&mut self, index: u32) -> Option<&mut Peer> {
        self.slots.get_mut(index as usize)?.as_deref_mut()
    }

    /// The peer with this identifier, for reading only.
    pub(super) fn look(&self, id: PeerId) -> Option<&Peer> {
        self.slots.get(id.slot())?.as_deref().filter(|peer| peer.id == id)
    }

    /// Puts a peer at the end of the ready queue, unless it is in the queue already.
    pub(super) fn make_ready(&mut self, id: PeerId) {
        if let Some(peer) = self.peer(id)
            && !peer.queued_ready
        {
            peer.queued_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Puts a peer at the head of the ready queue, unless it is in the queue already.
    pub(super) fn make_next(&mut self, id: PeerId) {
        if let Some(peer) = self.peer(id)
            && !peer.queued_ready
        {
            peer.queued_ready = true;
            self.ready.push_front(id);
        }
    }

    /// Earliest time when a peer has to be polled; `None` if no wake-up is scheduled.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.wakes.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next peer whose wake-up is due.
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

    /// Takes a peer out of its slot.
    pub(super) fn take(&mut self, id: PeerId) -> Option<Box<Peer>> {
        self.look(id)?;
        self.slots[id.slot()].take()
    }

    /// Schedules the wake-up of a peer. If an earlier wake-up is already scheduled, nothing
    /// changes: at that time the peer finds nothing due, and is scheduled again. After a packet or
    /// a send, the peer is scheduled when `poll_transmit` finds that it has nothing to send.
    pub(super) fn schedule(&mut self, id: PeerId, now: Instant, config: &Config) {
        if let Some(peer) = self.peer(id) {
            let mut at = peer.next_timeout(config);
            if at <= now {
                // E9. A timer that is due means that there is something to send. While the peer is
                // in the ready queue, `poll_transmit` sends it; if it could not, the peer is polled
                // again shortly.
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
    /// All wake-ups, by time and slot.
    pub(super) fn wakes(&self) -> alloc::collections::BTreeSet<(Instant, u32)> {
        self.wakes.iter().map(|Reverse(wake)| *wake).collect()
    }

    /// Number of wake-ups, with the outdated ones.
    pub(super) fn wakes_len(&self) -> usize {
        self.wakes.len()
    }
}

impl Peers {
    /// Removes outdated wake-ups, if there are many.
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
