//! The endpoint's state: every table of the Messaging Layer, and their initial values. The other
//! modules contain the operations on them, each in a separate `impl Rdm`.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use srd_proto::{Endpoint, PeerId, Qpn};

use crate::device::{Device, SingleQp};
use crate::handle::{Cq, Pd};
use crate::hash::{Keyed, Numbers};
use crate::layer::completion::OperationCompletion;
use crate::layer::request::Order;
use crate::mr::Mr;
use crate::rdm::config::{Bounds, Config};
use crate::rdm::counters::RdmCounters;
use crate::rdm::iovec::IOV_COUNT_MAX;
use crate::rdm::peers::connection::{Connection, Control, Entry, Hello};
use crate::rdm::receive::inbound::{Multi, Partial, Posted, Reading, UnexpectedMessage};
use crate::rdm::receive::matching::{Limits, Matcher, MessageKey};
use crate::rdm::send::operation::{BatchInFlight, Op};
use crate::rdm::wire::field;
use crate::rdm::wire::field::BASE_BYTES;
use crate::rdm::wire::frame::ATOMIC_IOV_BYTES;
use crate::rdm::wire::message::{MESSAGE_COST, MESSAGE_HEADER_MAX};
use crate::slots::{Key, Slots};

/// Returns this endpoint's IP address, and the payload bytes of a datagram to a peer at the same
/// address.
fn own_payload(endpoint: &Endpoint) -> Option<(IpAddr, usize)> {
    let config = endpoint.config();
    let more = usize::from(config.packet_bytes_most() - config.packet_bytes_max);
    config.own_ip.map(|ip| (ip, endpoint.payload_bytes_max() + more))
}

/// Number of the queue pair of every messaging layer.
pub(crate) const QPN: Qpn = Qpn(1);

/// A reliable datagram endpoint. The limits in its [`Config`] bound its tables; credit bounds its
/// unexpected messages.
#[derive(Debug)]
pub struct Rdm {
    pub(super) config: Config,
    pub(super) bounds: Bounds,
    pub(super) local_address: SocketAddr,
    pub(super) incarnation: u64,
    /// Value that frames for this run of the endpoint carry, to be checked on arrival (U3).
    pub(super) local_check: u32,
    pub(super) payload_bytes_max: usize,
    /// This endpoint's IP address, and the payload bytes of a datagram to a peer at the same
    /// address.
    pub(super) own: Option<(IpAddr, usize)>,
    pub(super) device: Device,
    pub(super) pd: Pd,
    pub(super) cq: Cq,
    /// Local key of the registration that covers the whole address space.
    pub(super) lkey: u32,
    pub(super) numbers: Numbers,
    pub(super) entries: Vec<Option<Entry>>,
    /// Free numbers of peers below the highest number in use.
    pub(super) free: BTreeSet<u32>,
    /// Number of times that each number was freed, by number; the count wraps around.
    pub(super) uses: Vec<u32>,
    /// Numbers of removed peers to which receives or stored messages still refer. Bound: the
    /// number of entries and of connections.
    pub(super) removed: VecDeque<u32>,
    /// Numbers of senders without a connection from which messages are stored. Bound: the number
    /// of entries.
    pub(super) former: BTreeSet<u32>,
    pub(super) by_name: HashMap<(SocketAddr, u64), u32, Keyed>,
    /// Connections, by the transport's number of the peer.
    pub(super) conns: Vec<Option<Box<Connection>>>,
    pub(super) conn_count: u32,
    /// Peers that the application has not added.
    pub(super) strangers: VecDeque<PeerId>,
    /// Number of connections whose peer the application has not added.
    pub(super) strangers_count: u32,
    /// Whether a stranger was refused, so that strangers that the transport has removed must be
    /// dropped.
    pub(super) crowded: bool,
    /// Peers that the transport may remove.
    pub(super) released: Vec<PeerId>,
    pub(super) ops: Slots<Op>,
    pub(super) order: Order,
    pub(super) controls: Slots<Control>,
    /// Datagrams with several messages (BATCH) that are not settled.
    pub(super) batches: Slots<BatchInFlight>,
    /// Connections to which a message was handed over since the application last polled.
    pub(super) bursts: Vec<u32>,
    /// Number of connections with further messages that wait for a batch.
    pub(super) coalescing: u32,
    /// Whether nothing that the application's last call queued has to be sent at once: the call
    /// posted a receive, or a message that waits for a batch.
    pub(super) deferred: bool,
    /// Whether the application's last call did nothing but send a message at once.
    pub(super) at_once: bool,
    pub(super) tagged: Matcher<Posted, UnexpectedMessage>,
    pub(super) plain: Matcher<Posted, UnexpectedMessage>,
    pub(super) multis: Slots<Multi>,
    /// Operations that send a long message, by the local key of the memory that the receiver may
    /// read.
    pub(super) shared_by: HashMap<u32, Key, Keyed>,
    /// Memory registered for peers, by remote key.
    pub(super) shares: HashMap<u64, Mr, Keyed>,
    /// Long messages that are being read.
    pub(super) readings: Slots<Reading>,
    /// Connections that wait for their turn to read more bytes of long messages.
    pub(super) reads_waiting: VecDeque<u32>,
    /// Number of read requests of long messages in progress.
    pub(super) reads_active: u32,
    /// Whether more read requests of long messages may be posted than at the last attempt.
    pub(super) reads_changed: bool,
    /// Claimed messages by their context and by whether they have tags.
    pub(super) claims: HashMap<(u64, bool), MessageKey, Keyed>,
    /// Credit that the peers' sessions hold, in bytes: the sum of `Incoming::held`.
    pub(super) credit_held: u64,
    /// Messages that have arrived in part, or early, by connection and id.
    pub(super) partials: BTreeMap<(u32, u32), Partial>,
    pub(super) reorder_bytes: usize,
    /// HELLO frames, which open sessions of peers, that wait until the next call of [`Rdm::pump`]
    /// answers them.
    pub(super) hellos: VecDeque<(PeerId, Hello)>,
    /// Connections that have something to send.
    pub(super) ready: VecDeque<u32>,
    /// Connections whose next message in order arrived early and is still stored, because its
    /// delivery was refused for lack of space.
    pub(super) stalled: Vec<u32>,
    pub(super) session_next: u32,
    /// Number of sessions that peers have opened; the count wraps around.
    pub(super) sessions_opened: u32,
    /// Connections for which anything waited at the last call of [`Rdm::probe`].
    pub(super) awaited: BTreeSet<u32>,
    /// Connections with a probe that is not settled.
    pub(super) probed: BTreeSet<u32>,
    pub(super) done: VecDeque<OperationCompletion>,
    /// Largest number of entries of `done`, without those that the application has polled and not
    /// read.
    pub(super) dones_now_max: usize,
    pub(super) counters: RdmCounters,
}

impl Rdm {
    /// Makes an endpoint over the transport's endpoint. `local_address` is the address of this
    /// endpoint, and `incarnation` identifies its run in addresses: not zero, and different for
    /// every run.
    ///
    /// # Panics
    /// Never: a new device has space for the objects that this function makes.
    pub fn new(
        config: Config,
        endpoint: &mut Endpoint,
        local_address: SocketAddr,
        incarnation: u64,
    ) -> Self {
        let bounds = Bounds::of(&config);
        let requests_max = bounds.operations_max.saturating_mul(8).min(1 << 20) + 4096;
        let limits = crate::Config {
            qpn_first: QPN.0,
            ahs_max: bounds.peers_max,
            sq_wrs_max: requests_max,
            rq_wrs_max: 0,
            cq_entries_max: requests_max,
            inline_bytes_max: 0,
            notes: true,
            seed: config.seed,
            ..crate::Config::default()
        };
        let single = SingleQp::new(limits, endpoint, field::qkey_of(incarnation), 7);
        let SingleQp { device, pd, cq, lkey } = single;
        let limits =
            Limits { receives_max: config.receives_max, messages_max: bounds.messages_max };
        let state = || Keyed::new(config.seed);
        Self {
            local_address,
            incarnation,
            local_check: field::run_check(incarnation),
            payload_bytes_max: endpoint.payload_bytes_max(),
            own: own_payload(endpoint),
            device,
            pd,
            cq,
            lkey,
            numbers: Numbers::new(config.seed),
            entries: Vec::new(),
            free: BTreeSet::new(),
            uses: Vec::new(),
            removed: VecDeque::new(),
            former: BTreeSet::new(),
            by_name: HashMap::with_hasher(state()),
            conns: Vec::new(),
            conn_count: 0,
            strangers: VecDeque::new(),
            strangers_count: 0,
            crowded: false,
            released: Vec::new(),
            ops: Slots::default(),
            order: Order::default(),
            controls: Slots::default(),
            batches: Slots::default(),
            bursts: Vec::new(),
            coalescing: 0,
            deferred: false,
            at_once: false,
            tagged: Matcher::new(limits, config.seed),
            plain: Matcher::new(limits, config.seed),
            multis: Slots::default(),
            shared_by: HashMap::with_hasher(state()),
            shares: HashMap::with_hasher(state()),
            readings: Slots::default(),
            reads_waiting: VecDeque::new(),
            reads_active: 0,
            reads_changed: false,
            claims: HashMap::with_hasher(state()),
            credit_held: 0,
            partials: BTreeMap::new(),
            reorder_bytes: 0,
            hellos: VecDeque::new(),
            ready: VecDeque::new(),
            stalled: Vec::new(),
            session_next: 0,
            sessions_opened: 0,
            awaited: BTreeSet::new(),
            probed: BTreeSet::new(),
            done: VecDeque::new(),
            dones_now_max: bounds.dones_max,
            counters: RdmCounters::default(),
            config,
            bounds,
        }
    }

    /// Returns the payload bytes of a datagram to a peer at this address, by local configuration.
    pub(super) fn payload_to(&self, ip: IpAddr) -> usize {
        let own = self.own.filter(|(own, _)| *own == ip);
        own.map_or(self.payload_bytes_max, |(_, bytes)| bytes)
    }

    /// Returns the largest number of bytes of an injected message: at most the bytes for which a
    /// peer always grants credit (G5), because an injected message cannot become a long message.
    pub fn inject_bytes_max(&self) -> u64 {
        let room = self.payload_bytes_max - MESSAGE_HEADER_MAX;
        (room as u64).min(self.bounds.window_bytes_min / 2 - MESSAGE_COST)
    }

    /// Returns the largest number of bytes of an atomic operation: small enough for every path.
    pub fn atomic_bytes_max(&self, compare: bool) -> u64 {
        let header = BASE_BYTES + 8 + IOV_COUNT_MAX * ATOMIC_IOV_BYTES;
        let room = self.payload_bytes_max.saturating_sub(header).min(1024) as u64;
        // A multiple of the element size of every type.
        (if compare { room / 2 } else { room }) & !15
    }

    /// Returns the counters of the endpoint.
    pub fn counters(&self) -> &RdmCounters {
        &self.counters
    }

    /// Returns the counters of reads and writes.
    pub fn device_counters(&self) -> &crate::Counters {
        self.device.counters()
    }

    /// Whether ended operations must be polled before further operations are accepted.
    pub(super) fn is_full(&self) -> bool {
        self.done.len() >= self.dones_now_max
    }
}
