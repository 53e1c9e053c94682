//! The endpoint's state, and the calls that drive the endpoint.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::SocketAddr;

use hashbrown::HashMap;
use srd_proto::{Delivery, Endpoint, Event, Instant, PeerId, Qpn, Status};

use crate::device::{Device, SingleQp};
use crate::handle::{Ah, Cq, Pd};
use crate::hash::Keyed;
use crate::layer::completion::Kind;
use crate::layer::world::{Peer, World};
use crate::memory::Memory;
use crate::mr::Mr;
use crate::slots::Slots;

/// Q key of all endpoints. One value suffices, because the number of the queue pair identifies the
/// protocol.
pub(super) const QKEY: u32 = 0;

/// Treatment of a message for which the receiver has no suitable receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// The message is lost. The service has no reads and writes.
    Datagrams,
    /// The message waits for a receive. A message that is longer than its receive fails.
    Direct,
}

impl Service {
    /// Returns the queue pair number. It differs between services, so endpoints of different
    /// services exchange no messages.
    const fn qpn(self) -> Qpn {
        match self {
            Self::Datagrams => Qpn(2),
            Self::Direct => Qpn(3),
        }
    }

    /// Returns the number of retries of a datagram for which there was no receive; 7: without
    /// limit.
    const fn rnr_retries(self) -> u8 {
        match self {
            Self::Datagrams => 3,
            Self::Direct => 7,
        }
    }
}

/// Service and limits of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Service of the endpoint.
    pub service: Service,
    /// Largest number of sends, reads and writes in progress.
    pub operations_max: u32,
    /// Largest number of posted receives.
    pub receives_max: u32,
    /// Largest number of peers.
    pub peers_max: u32,
    /// Secret key of the hash tables.
    pub seed: u64,
}

/// A request that has not completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) context: u64,
    /// Whether success is reported in a completion queue.
    pub(super) signaled: bool,
    /// The peer; `None` for a receive.
    pub(super) peer: Option<Peer>,
    /// Length of the request in bytes.
    pub(super) length: u64,
}

/// State of one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: PeerId,
    pub(super) ah: Ah,
    /// Address of the peer; `None` until it was looked up.
    pub(super) address: Option<SocketAddr>,
}

/// An endpoint of the plain verbs. The limits in its [`Config`] bound its tables.
#[derive(Debug)]
pub struct Direct {
    pub(super) config: Config,
    pub(super) local_address: SocketAddr,
    pub(super) payload_bytes_max: usize,
    pub(super) device: Device,
    pub(super) pd: Pd,
    pub(super) cq: Cq,
    /// Local key of the registration that covers the whole address space.
    pub(super) lkey: u32,
    /// Peers; the index is the transport's index of the peer.
    pub(super) peers: Vec<Option<Entry>>,
    /// Peers that have sent to this endpoint and whose address was not looked up yet.
    pub(super) strangers: Vec<PeerId>,
    pub(super) requests: Slots<Request>,
    /// Number of requests that are reads.
    pub(super) reads: u32,
    /// Peers from which reads were in progress at the last call of [`Direct::probe`].
    pub(super) awaited: BTreeSet<u32>,
    /// Number of polled completions that the application has not read.
    pub(super) unread: u32,
    /// Memory registered for peers, by remote key.
    pub(super) shares: HashMap<u64, Mr, Keyed>,
}

impl Direct {
    /// Makes an endpoint over the transport's endpoint; `local_address` is the address of this
    /// endpoint.
    ///
    /// # Panics
    /// Never: a new device has space for the objects that this function makes.
    pub fn new(config: Config, endpoint: &mut Endpoint, local_address: SocketAddr) -> Self {
        let payload_bytes_max = endpoint.payload_bytes_max();
        let inline_bytes_max = u32::try_from(payload_bytes_max).unwrap_or(u32::MAX);
        let operations_max = config.operations_max.clamp(1, 1 << 20);
        let receives_max = config.receives_max.min(1 << 20);
        // Adds entries for writes with data, which use no receive and so have no reserved entry.
        let entries_max = operations_max + 2 * receives_max.max(64);
        let limits = crate::Config {
            qpn_first: config.service.qpn().0,
            ahs_max: config.peers_max,
            sq_wrs_max: operations_max,
            rq_wrs_max: receives_max,
            cq_entries_max: entries_max,
            inline_bytes_max,
            seed: config.seed,
            ..crate::Config::default()
        };
        let single = SingleQp::new(limits, endpoint, QKEY, config.service.rnr_retries());
        let SingleQp { device, pd, cq, lkey } = single;
        let state = Keyed::new(config.seed);
        Self {
            local_address,
            payload_bytes_max,
            device,
            pd,
            cq,
            lkey,
            peers: Vec::new(),
            strangers: Vec::new(),
            requests: Slots::default(),
            reads: 0,
            awaited: BTreeSet::new(),
            unread: 0,
            shares: HashMap::with_hasher(state),
            config: Config { operations_max, receives_max, ..config },
        }
    }

    /// Returns the bytes of the longest message.
    pub fn message_bytes_max(&self) -> u64 {
        self.payload_bytes_max as u64
    }

    /// Returns the counters of the endpoint's device.
    pub fn device_counters(&self) -> &crate::Counters {
        self.device.counters()
    }

    /// Sets the number of polled completions that the application has not read: they count towards
    /// the limit of requests.
    pub fn set_unread(&mut self, unread: usize) {
        self.unread = u32::try_from(unread).unwrap_or(u32::MAX);
    }

    /// Whether no operation and no answer to a peer is in progress.
    pub fn is_quiet(&self) -> bool {
        self.device.is_quiet()
    }

    /// Admits or refuses a datagram, for [`srd_proto::Endpoint::handle_packet_with`].
    pub fn admit(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        memory: &mut dyn Memory,
    ) -> Status {
        self.ensure_peer(delivery.peer);
        self.device.admit(now, delivery, memory)
    }

    /// Handles an event of the transport.
    pub fn event(&mut self, now: Instant, event: &Event) {
        self.device.event(now, event);
    }

    /// Sends waiting datagrams, as many as the transport accepts. Returns whether the transport
    /// accepted any.
    pub fn pump(&mut self, world: &mut World<'_>) -> bool {
        self.resolve_addresses(world.endpoint);
        self.device.pump(world.now, world.endpoint, world.memory) > 0
    }

    pub(super) fn qpn(&self) -> Qpn {
        self.config.service.qpn()
    }
}
