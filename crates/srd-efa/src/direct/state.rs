//! The endpoint's state, and what drives it.

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

/// The Q key of all endpoints: the number of the queue pair identifies the protocol.
pub(super) const QKEY: u32 = 0;

/// Treatment of a message that its receiver cannot take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// The message is lost. There are no reads and writes.
    Datagrams,
    /// The message waits for a receive. A message that is longer than its receive fails.
    Direct,
}

impl Service {
    /// The queue pair. Each service has its own, so endpoints of different services exchange no
    /// messages.
    const fn qpn(self) -> Qpn {
        match self {
            Self::Datagrams => Qpn(2),
            Self::Direct => Qpn(3),
        }
    }

    /// Number of retries of a datagram that found no receive; 7: without limit.
    const fn rnr_retries(self) -> u8 {
        match self {
            Self::Datagrams => 3,
            Self::Direct => 7,
        }
    }
}

/// Every limit of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Service of the endpoint.
    pub service: Service,
    /// Sends, reads and writes that may be under way.
    pub operations_max: u32,
    /// Receives that may be posted.
    pub receives_max: u32,
    /// Peers.
    pub peers_max: u32,
    /// Secret that tables are keyed with.
    pub seed: u64,
}

/// A request that has not completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) context: u64,
    /// Whether success is signaled.
    pub(super) signaled: bool,
    /// The peer; none for a receive.
    pub(super) peer: Option<Peer>,
    /// Bytes.
    pub(super) length: u64,
}

/// One peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: PeerId,
    pub(super) ah: Ah,
    /// Address of the peer, once it was looked up.
    pub(super) address: Option<SocketAddr>,
}

/// An endpoint. Bounds: those of its [`Config`].
#[derive(Debug)]
pub struct Direct {
    pub(super) config: Config,
    pub(super) local_address: SocketAddr,
    pub(super) payload_bytes_max: usize,
    pub(super) device: Device,
    pub(super) pd: Pd,
    pub(super) cq: Cq,
    /// The local key of all memory.
    pub(super) lkey: u32,
    /// By the transport's number of the peer.
    pub(super) peers: Vec<Option<Entry>>,
    /// Peers that wrote to us and whose address is still to be looked up.
    pub(super) strangers: Vec<PeerId>,
    pub(super) requests: Slots<Request>,
    /// Memory that peers may use, by key.
    pub(super) shares: HashMap<u64, Mr, Keyed>,
}

impl Direct {
    /// An endpoint over the transport's; `local_address` is ours.
    ///
    /// # Panics
    /// Never: a new device has room for what this makes.
    pub fn new(config: Config, endpoint: &mut Endpoint, local_address: SocketAddr) -> Self {
        let payload_bytes_max = endpoint.payload_bytes_max();
        let inline_bytes_max = u32::try_from(payload_bytes_max).unwrap_or(u32::MAX);
        let operations_max = config.operations_max.clamp(1, 1 << 20);
        let receives_max = config.receives_max.min(1 << 20);
        // Writes with data that no receive is used for find room beside all promises.
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
            shares: HashMap::with_hasher(state),
            config: Config { operations_max, receives_max, ..config },
        }
    }

    /// Bytes of the longest message.
    pub fn message_bytes_max(&self) -> u64 {
        self.payload_bytes_max as u64
    }

    /// The counters of the verbs.
    pub fn device_counters(&self) -> &crate::Counters {
        self.device.counters()
    }

    /// Whether nothing is under way that a peer waits for.
    pub fn is_quiet(&self) -> bool {
        self.device.is_quiet()
    }

    /// Judges a datagram, for [`srd_proto::Endpoint::handle_packet_with`].
    pub fn admit(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        memory: &mut dyn Memory,
    ) -> Status {
        self.ensure_peer(delivery.peer);
        self.device.admit(now, delivery, memory)
    }

    /// Takes note of something that happened in the transport.
    pub fn event(&mut self, now: Instant, event: &Event) {
        self.device.event(now, event);
    }

    /// Sends on what waits, as far as the transport takes it. Returns whether it took anything.
    pub fn pump(&mut self, world: &mut World<'_>) -> bool {
        self.resolve_addresses(world.endpoint);
        self.device.pump(world.now, world.endpoint, world.memory) > 0
    }

    pub(super) fn qpn(&self) -> Qpn {
        self.config.service.qpn()
    }
}
