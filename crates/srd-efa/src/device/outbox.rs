//! Operations and control datagrams that wait to be handed to the transport, for each peer.
//!
//! An operation with unsent datagrams is in one of two queues of its peer. The first queue holds
//! messages and requests. The second queue, with lower priority, holds the bytes of reads and
//! writes. Bound: the device's operations, and one control datagram for each.

use alloc::collections::VecDeque;

use hashbrown::HashMap;
use srd_proto::{Datagram, PeerId};

use crate::hash::Keyed;
use crate::slots::Key;

/// Largest number of datagrams that one operation sends before the next operation has its turn
/// (R12).
pub(super) const TURN_DATAGRAMS: u32 = 16;
/// Completion number of control datagrams, whose completions are ignored.
pub(super) const NOBODY: u64 = u64::MAX;

/// Operations that take turns in sending datagrams to a peer.
#[derive(Debug, Default)]
pub(super) struct OpQueue {
    pub(super) waiting: VecDeque<Key>,
    /// Number of datagrams that the first operation has sent in its turn.
    pub(super) turn: u32,
}

/// Operations and datagrams that wait for one peer.
#[derive(Debug)]
pub(super) struct PeerQueue {
    /// Queue of messages and requests, and queue of transfers.
    pub(super) queues: [OpQueue; 2],
    /// WRITE ABORTs and READ ERRORs, which are sent first.
    pub(super) control: VecDeque<Datagram>,
    /// Whether the transport is full; an event follows when the transport has space.
    pub(super) blocked: bool,
    /// Whether the peer is in the list of peers with work.
    pub(super) ready: bool,
}

/// Queues of all peers with operations or datagrams that wait to be sent.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Queues of the peers that datagrams wait for.
    pub(super) peers: HashMap<PeerId, PeerQueue, Keyed>,
    pub(super) ready: VecDeque<PeerId>,
    /// Largest number of payload bytes of a message, to any peer.
    pub(super) payload_bytes_max: usize,
}

impl Outbox {
    pub(super) fn new(payload_bytes_max: usize, seed: u64) -> Self {
        let peers = HashMap::with_hasher(Keyed::new(seed));
        Self { peers, ready: VecDeque::new(), payload_bytes_max }
    }

    pub(super) fn queue(&mut self, id: PeerId) -> &mut PeerQueue {
        self.peers.entry(id).or_insert_with(|| PeerQueue {
            queues: Default::default(),
            control: VecDeque::new(),
            blocked: false,
            ready: false,
        })
    }

    pub(super) fn look(&self, id: PeerId) -> Option<&PeerQueue> {
        self.peers.get(&id)
    }

    /// Ends a peer's turn: lists the peer again if datagrams wait for it, and removes its queue if
    /// the queue has no state to keep.
    pub(super) fn settle(&mut self, id: PeerId) {
        let Some(queue) = self.peers.get(&id) else { return };
        let empty = queue.is_empty(1) && queue.control.is_empty();
        if !empty && !queue.blocked {
            self.wake(id);
        } else if empty && !queue.blocked && !queue.ready {
            self.peers.remove(&id);
        }
    }

    pub(super) fn wake(&mut self, id: PeerId) {
        let queue = self.queue(id);
        if !core::mem::replace(&mut queue.ready, true) {
            self.ready.push_back(id);
        }
    }

    /// Records that the transport accepts datagrams for this peer again.
    pub(super) fn unblock(&mut self, id: PeerId) {
        self.queue(id).blocked = false;
        self.wake(id);
    }
}

impl PeerQueue {
    /// Whether queue `number` of the peer, and every queue of higher priority, is empty.
    pub(super) fn is_empty(&self, number: usize) -> bool {
        self.queues[..=number].iter().all(|queue| queue.waiting.is_empty())
    }
}
