//! Another run of an endpoint: with another static key, or because its state may exist twice. It
//! exists twice after a virtual machine was restored to an earlier state or cloned, or a process
//! was restored from a checkpoint.
//!
//! Both copies hold the same keys and would seal different packets under the same numbers. This
//! reveals to an observer the exclusive or of their contents, and the key that authenticates them.
//! The core cannot detect that it was copied; the world detects it, and calls [`Endpoint::reseed`].

use super::Endpoint;
use super::replies::Replies;
use crate::ids::Epoch;
use crate::node::ContextNumbers;
use crate::rng::Rng;
use crate::security::FRESH_BYTES;
use crate::time::Instant;

impl Endpoint {
    /// Begins another run: draws new randomness and ends every session, so that no packet is sealed
    /// under a key that a copy of this endpoint may have. When the state may have been copied, this
    /// must be called on each copy, with a `seed` that no copy has received, and with an `epoch`
    /// that is chosen as for a new endpoint. Datagrams that were sent and are not settled end as
    /// [`crate::Status::RemoteAbort`]; unsent ones wait for the new session. Each peer that was up
    /// is reported down once, as [`crate::DownReason::Restarted`]. The next packet to or from a
    /// peer opens a session.
    pub fn reseed(&mut self, now: Instant, epoch: Epoch, seed: [u8; 32]) {
        // S31: Copied state
        let now = self.at(now);
        if self.closed {
            return;
        }
        let shared = &mut self.shared;
        shared.security.reseed(&seed, now);
        self.rng = Rng::new(shared.security.word());
        // The Closes were sealed under the keys of the sessions that end.
        self.queued_closes.clear();
        self.replies = Replies::new(now, shared.security.word());
        // H4: Larger epoch at each start
        let bumps = self.peers.slots.iter().flatten().map(|peer| peer.epoch_bump);
        let bump = bumps.max().unwrap_or(0).max(self.epoch_bump_next);
        let next = shared.epoch.0.saturating_add(bump).saturating_add(1);
        shared.epoch = Epoch(epoch.0.max(next));
        self.epoch_bump_next = 0;
        // H2a: Context numbers name a run
        let (before, peers_max) = (shared.numbers, shared.node.config.peers_max);
        shared.numbers = ContextNumbers::new(shared.shard, peers_max, shared.security.word());
        let numbers = shared.numbers;
        for last in &mut self.free {
            *last = numbers.first(random_bits(&mut self.rng), before.index(*last));
        }
        for slot in 0..self.peers.slots.len() {
            let Some(peer) = self.peers.slots[slot].as_deref_mut() else { continue };
            let context = numbers.first(random_bits(&mut self.rng), peer.id.index());
            peer.begin_run(now, context, self.rng.next_u64(), &mut self.shared);
            let id = peer.id;
            self.peers.make_ready(id);
        }
        #[cfg(debug_assertions)]
        self.audit();
    }

    /// Changes the static private key, and begins another run as [`Endpoint::reseed`] does: a
    /// session binds the keys of both ends, so none continues. `epoch` is chosen as for a new
    /// endpoint. A peer opens a session again as soon as it has the new public key. Returns false
    /// if the endpoint is closed or has no static key; nothing changes then.
    pub fn rekey(&mut self, now: Instant, epoch: Epoch, private: [u8; 32]) -> bool {
        // S32: Another static key
        if self.closed || !self.shared.security.set_static(&private) {
            return false;
        }
        let seed = self.shared.security.seed();
        self.reseed(now, epoch, seed);
        true
    }

    /// Sets a source of random bytes. `fresh` is called before each opening of a session and each
    /// answer to an opening, and its bytes are mixed into the generator of keys. So a copy of this
    /// process that has not been detected yet creates other sessions than this process.
    pub fn mix_in(&mut self, fresh: fn(&mut [u8; FRESH_BYTES])) {
        self.shared.security.mix_in(fresh);
    }
}

/// Random bits for a context number.
#[allow(clippy::cast_possible_truncation)] // half of the word is enough
fn random_bits(rng: &mut Rng) -> u32 {
    rng.next_u64() as u32
}
