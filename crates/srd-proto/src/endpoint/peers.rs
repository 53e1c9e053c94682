//! The peers, with the ready queue that `poll_transmit` walks and the wake-ups.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::config::Config;
use crate::credit::{Share, Shares};
use crate::ids::PeerId;
use crate::peer::Peer;
use crate::time::{Duration, Instant};

/// When to look again at something that was due and could not be done.
const RETRY_AFTER: Duration = Duration::from_micros(10);

/// The peers, with what `poll_transmit` and `poll_timeout` walk.
#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) slots: Vec<Option<Box<Peer>>>,
    pub(super) ready: VecDeque<PeerId>,
    /// When to look at whom: of each peer at most one entry, [`Peer::wake_at`].
    wakes: BTreeSet<(Instant, u32)>,
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

    /// When the first peer wants to be looked at.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// The next peer that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<PeerId> {
        while let Some(&(at, index)) = self.wakes.first().filter(|(at, _)| *at <= now) {
            self.wakes.remove(&(at, index));
            if let Some(peer) = self.at(index) {
                peer.wake_at = Instant::FAR_FUTURE;
                return Some(peer.id);
            }
        }
        None
    }

    /// Takes a peer out.
    pub(super) fn take(&mut self, id: PeerId) -> Option<Box<Peer>> {
        self.look(id)?;
        let peer = self.slots[id.slot()].take()?;
        self.wakes.remove(&(peer.wake_at, id.index()));
        Some(peer)
    }

    /// Makes sure that a peer is woken in time. One that is woken too early finds out by itself
    /// that nothing is due, so a later time need not be noted. What a packet or a sending changes
    /// waits until the peer's turn in the ready queue finds nothing to send.
    pub(super) fn schedule(&mut self, id: PeerId, now: Instant, config: &Config) {
        if let Some(peer) = self.peer(id) {
            let mut at = peer.next_timeout(config);
            if at <= now {
                // What is due is something to send. While the peer is in the ready queue,
                // `poll_transmit` sees to it; if it could not, it tries again shortly.
                if peer.queued_ready {
                    return;
                }
                at = now + RETRY_AFTER;
            }
            if at < peer.wake_at {
                let before = core::mem::replace(&mut peer.wake_at, at);
                self.wakes.remove(&(before, id.index()));
                self.wakes.insert((at, id.index()));
            }
        }
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
