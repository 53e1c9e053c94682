//! What the peers of one endpoint share: configuration, counters, events, keys, and their parts of
//! the link and of the receiver's share. Every call on a peer is handed this.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::sync::Arc;

use crate::credit::ReceiverShare;
use crate::crypto::Drbg;
use crate::egress::Egress;
use crate::event::Event;
use crate::ids::{Epoch, Qpn};
use crate::node::{ContextNumbers, Node};
use crate::security::Security;
use crate::stats::Stats;
use crate::time::Instant;

/// An endpoint but for its peers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub node: Arc<Node>,
    /// Which of the node's shards this is.
    pub shard: u8,
    /// The epoch of this run. The node's, until this shard begins another run.
    pub epoch: Epoch,
    /// What this run numbers its contexts by.
    pub numbers: ContextNumbers,
    /// The time of the newest call.
    pub now: Instant,
    pub stats: Stats,
    pub events: VecDeque<Event>,
    pub security: Security,
    pub egress: Egress,
    pub share: ReceiverShare,
    /// The numbers that peers have for our contexts, each with the peer's slot.
    pub contexts: BTreeSet<(u32, u32)>,
    /// RNR retries of sending queue pairs that have a number of their own. Bound: as many entries
    /// as there are queue pair numbers.
    pub rnr_retries: BTreeMap<Qpn, u8>,
}

impl Shared {
    /// A shard of a node. `seed` must be fresh, and secret where packets are protected.
    pub(crate) fn new(node: Arc<Node>, shard: u8, seed: &[u8; 32], now: Instant) -> Self {
        // H2a, S1. The epoch is another in each run even where the seed is not.
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

    /// Whether our own link takes data now.
    pub(crate) fn link_open(&self) -> bool {
        self.egress.is_open(&self.node, self.now)
    }

    /// How many senders share us.
    pub(crate) fn senders(&self) -> u16 {
        u16::try_from(self.share.senders(self.now)).unwrap_or(u16::MAX)
    }
}
