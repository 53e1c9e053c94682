//! State of the Express stage, and the trait through which frames reach the guest.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use srd_proto::time::Instant;
use srd_proto::{Endpoint, PeerId, ReceiveBuffers};

use super::paths::Paths;
use super::peer::Peer;
use crate::config::Config;
use crate::counters::Counters;
use crate::flow::numbering::Numbers;
use crate::flow::table::FlowTable;
use crate::hash::part;
use crate::order::{Limits, Order};
use crate::queue::scheduler::Aqm;
use crate::rewrite::too_big::Limit;
use crate::rules::snapshot::{Carried, Rules};
use crate::wire::queue_pairs::{CLOUD_QPN, FRAME_QPN, OFFER_QPN};

/// Number with which a secret for the first flow number is derived from the configured secret.
/// Peers see flow numbers, which must not reveal the secret of the tables.
const NUMBERS: u64 = 1;
/// Number with which a secret for the paths of clouds' packets outside of SRD is derived from the
/// configured secret.
const PATHS: u64 = 2;

/// Receiver of the frames that the stage delivers to the guest.
pub trait Guest {
    /// Takes a frame: an offload header and its packet.
    fn deliver(&mut self, frame: &[u8]);
}

/// The Express stage, which carries packets of a guest and of clouds to peers, over SRD or by plain
/// encapsulation. Bounds: `flows_max` flows in each direction, `queue_bytes_max` bytes waiting for
/// each peer, `receive_bytes_max` bytes waiting for the guest, and `receive_bytes_max` more waiting
/// for instances of a cloud.
#[derive(Debug)]
pub struct Express {
    pub(super) config: Config,
    pub(super) aqm: Aqm,
    pub(super) rules: Arc<Rules>,
    /// Peers that the rules name; the index is the slot.
    pub(super) peers: Vec<Option<Peer>>,
    pub(super) by_id: BTreeMap<PeerId, u32>,
    /// For each peer, by its slot, the contexts of further shards of its node that have requested
    /// our offer.
    pub(super) partners: BTreeMap<u32, Vec<PeerId>>,
    /// The generation that was assigned to a peer last.
    pub(super) generation: u64,
    /// Earliest time at which an offer to any peer is due.
    pub(super) offer_at: Instant,
    pub(super) table: FlowTable,
    pub(super) numbers: Numbers,
    /// Selection of paths for clouds' packets outside of SRD.
    pub(super) paths: Paths,
    /// Slots of the peers that have frames in their queues, in the order of their turns.
    pub(super) ready: VecDeque<u32>,
    pub(super) order: Order,
    /// Order of frames of clouds, which have their own limits.
    pub(super) cloud_order: Order,
    pub(super) counters: Counters,
    /// Rate limit of answers to the guest for packets that are too big.
    pub(super) answers: Limit,
    /// Largest number of bytes that one unreliable datagram carries, at the configured MTU.
    pub(super) plain_bytes_max: usize,
}

impl Express {
    /// Creates a stage without peers, and opens its queue pairs at the endpoint that it will use.
    pub fn new(config: Config, endpoint: &mut Endpoint) -> Self {
        endpoint.open_qp(FRAME_QPN, ReceiveBuffers::Unlimited);
        endpoint.open_qp(OFFER_QPN, ReceiveBuffers::Unlimited);
        if config.cloud {
            endpoint.open_qp(CLOUD_QPN, ReceiveBuffers::Unlimited);
        }
        let aqm = Aqm {
            target: config.queue_target,
            interval: config.queue_interval,
            bytes_max: config.queue_bytes_max,
        };
        let limits = Limits {
            wait: config.order_wait,
            flows_max: config.flows_max as usize,
            bytes_max: config.receive_bytes_max,
        };
        Self {
            aqm,
            rules: Arc::new(Rules::new(Carried {
                express: config.express,
                udp: config.express_udp,
                tunnels: config.express_tunnels,
            })),
            peers: Vec::new(),
            by_id: BTreeMap::new(),
            partners: BTreeMap::new(),
            generation: 0,
            offer_at: Instant::ZERO,
            table: FlowTable::new(config.flows_max, config.secret),
            numbers: Numbers::new(part(&config.secret, NUMBERS).word()),
            paths: Paths::new(part(&config.secret, PATHS)),
            ready: VecDeque::new(),
            order: Order::new(limits, config.secret),
            cloud_order: Order::new(limits, config.secret),
            counters: Counters::default(),
            answers: Limit::default(),
            plain_bytes_max: endpoint.unreliable_bytes_max(),
            config,
        }
    }

    pub(super) fn peer(&self, slot: u32) -> Option<&Peer> {
        self.peers.get(slot as usize).and_then(Option::as_ref)
    }

    pub(super) fn peer_mut(&mut self, slot: u32) -> Option<&mut Peer> {
        self.peers.get_mut(slot as usize).and_then(Option::as_mut)
    }

    pub(super) fn slot_of(&self, id: PeerId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// Returns a generation number that no peer has had.
    pub(super) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }
}
