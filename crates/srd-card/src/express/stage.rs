//! State of the Express stage, and the trait through which frames reach the guest.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use srd_proto::time::Instant;
use srd_proto::{Endpoint, PeerId, ReceiveBuffers};

use super::absent::Absent;
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

/// The Express stage: the carrier of a host, which moves frames between the hosts, over SRD or by
/// plain encapsulation. The frames are those of the host's guest and those of instances of a cloud.
///
/// # Calls
///
/// The caller passes the present time to each call. It owns an [`Endpoint`], and calls:
///
/// - **Frames that leave**: [`from_guest`](Self::from_guest) for a frame of the guest, which the
///   [`Rules`] assign to a peer, and [`from_cloud`](Self::from_cloud) for a frame of an instance,
///   whose receiver's host the caller names. Each of them queues the frame, or drops and counts it.
///   [`pump`](Self::pump) passes queued frames and due offers to the endpoint.
/// - **Datagrams that arrive**: [`delivered`](Self::delivered) for each datagram that the endpoint
///   delivers. Complete frames for the guest go to a [`Guest`], in the order of their flow. If a
///   node has several shards, [`delivered_by`](Self::delivered_by) takes their datagrams. If
///   [`Config::cloud`] is true, [`delivered_of_cloud`](Self::delivered_of_cloud) is called first,
///   and passes frames for instances to an [`Arrivals`](super::Arrivals).
/// - **Events**: [`event`](Self::event) for each event of the endpoint.
/// - **Time**: [`handle_timeout`](Self::handle_timeout),
///   [`handle_cloud_timeout`](Self::handle_cloud_timeout) and [`pump`](Self::pump), when the time
///   of [`poll_timeout`](Self::poll_timeout) has come.
/// - **Rules**: [`add_peer`](Self::add_peer), [`remove_peer`](Self::remove_peer),
///   [`set_rules`](Self::set_rules) and the other calls with the prefix `set_`. The change applies
///   to frames that wait, too (X4 of `docs/spec/express.md`).
///
/// # Contract
///
/// - SRD carries no frame until the peer has made its offer (X1); until then, frames use plain
///   encapsulation.
/// - Frames of one flow that SRD carries are delivered in order. The wait for a missing frame ends
///   after [`Config::order_wait`].
/// - After [`event`](Self::event) or a frame that leaves, the caller calls [`pump`](Self::pump)
///   before it polls the endpoint for packets. [`has_waiting`](Self::has_waiting) is true if the
///   endpoint could not take all frames; the next call of [`pump`](Self::pump) continues.
/// - Nothing that a frame or a datagram contains makes a call panic: a frame that cannot be used is
///   dropped and counted in [`Counters`].
///
/// # Limits
///
/// `flows_max` flows in each direction, `queue_bytes_max` bytes waiting for each peer,
/// `absent_bytes_max` bytes waiting for all peers without an offer together, `receive_bytes_max`
/// bytes waiting for the guest, and `receive_bytes_max` more waiting for instances of a cloud.
///
/// # Example
///
/// Two hosts, each with a guest, an endpoint and this stage, and the network between them:
///
#[doc = concat!("```ignore\n", include_str!("../../tests/it/express_example.rs"), "```\n")]
#[derive(Debug)]
pub struct Express {
    pub(super) config: Config,
    pub(super) aqm: Aqm,
    pub(super) absent: Absent,
    pub(super) rules: Arc<Rules>,
    /// Peers that the rules name; the index of a peer is its slot.
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
            absent: Absent::new(config.absent_bytes_max),
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
