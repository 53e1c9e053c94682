//! State that the peers of one endpoint share: configuration, counters, events and keys. It also
//! contains the endpoint's part of two budgets of its node: the rate of the node's link, and the
//! credit that the node, as a receiver, grants to senders. Every call on a peer receives this
//! state.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::sync::Arc;

use crate::crypto::Drbg;
use crate::event::Event;
use crate::ids::{Epoch, Qpn};
use crate::node::{ContextNumbers, Node};
use crate::security::Security;
use crate::send::credit::ReceiverShare;
use crate::send::egress::Egress;
use crate::stats::Stats;
use crate::time::Instant;

/// The state of an endpoint, without its peers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub node: Arc<Node>,
    /// Index of this shard in its node.
    pub shard: u8,
    /// Epoch of this run. It equals the node's epoch until the shard begins another run.
    pub epoch: Epoch,
    /// Assigns the context numbers of this run.
    pub numbers: ContextNumbers,
    /// Time that the newest call into the endpoint passed.
    pub now: Instant,
    pub stats: Stats,
    pub events: VecDeque<Event>,
    pub security: Security,
    pub egress: Egress,
    pub share: ReceiverShare,
    /// Context numbers that peers have assigned, each with the slot of its peer. A Reset that names
    /// one of them finds its peer here.
    pub contexts: BTreeSet<(u32, u32)>,
    /// RNR retries of the sending queue pairs that have a value of their own. Bound: one entry for
    /// each queue pair number.
    pub rnr_retries: BTreeMap<Qpn, u8>,
}

impl Shared {
    /// Creates the state of one shard of a node. `seed` must be fresh, and must be secret if
    /// protection is on.
    pub(crate) fn new(node: Arc<Node>, shard: u8, seed: &[u8; 32], now: Instant) -> Self {
        // H2a, S1. The epoch differs in each run, even if the seed is the same.
        let purpose = format!("context numbers of run {}", node.epoch.0);
        let random = Drbg::new(seed, &purpose).next_u64();
        Self {
            shard,
            epoch: node.epoch,
            numbers: ContextNumbers::new(shard, node.config.peers_max, random),
            now,
            stats: Stats::default(),
            events: VecDeque::new(),
            security: Security::new(&node.config, seed, now),
            egress: Egress::new(&node, now),
            share: ReceiverShare::new(&node),
            contexts: BTreeSet::new(),
            rnr_retries: BTreeMap::new(),
            node,
        }
    }

    /// Whether egress pacing allows data to leave now.
    pub(crate) fn link_open(&self) -> bool {
        self.egress.is_open(&self.node, self.now)
    }

    /// Number of peers that send to this receiver now, or did within the last 10 ms.
    pub(crate) fn senders(&self) -> u16 {
        u16::try_from(self.share.senders(self.now)).unwrap_or(u16::MAX)
    }
}
