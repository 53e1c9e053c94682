//! The Messaging Layer, pure: reliable datagram endpoints (`FI_EP_RDM`) over SRD.
//!
//! An [`Rdm`] sends messages of any length, in order to each peer, to receives that are matched by
//! tag and source; it reads and writes peers' memory, and lets them do so. It is what EFA's
//! libfabric provider is to EFA's device: `docs/spec/rdm.md` is the specification.
//!
//! | room | what |
//! |---|---|
//! | `peers` | addresses, runs and sessions |
//! | `send` | from the application's call to the end of the operation |
//! | `receive` | from a peer's datagram to the application's receive |
//! | `rma` | reads, writes and atomic operations |
//! | `wire` | the frames |
//! | `api` | what callers say, and what they are told |
//! | `iovec`, `occupancy` | memory in pieces; how much of everything there is |
//!
//! # Three decisions
//! - **Nothing is posted.** A message is looked up while it lies in the packet that brought it,
//!   and copied once, into the application's buffer.
//! - **The receiver decides.** Short messages come by credit, and long ones are read by their
//!   receiver, so many at a time: nothing that senders do can flood it, and it refuses nobody.
//! - **Doubt opens a session.** When anything sent may be lost, the sender begins to count anew and
//!   says so first; no message is delivered twice, or out of order, and none vanishes unsaid.

pub(crate) mod api;
pub(crate) mod iovec;
pub(crate) mod occupancy;
pub(crate) mod peers;
pub(crate) mod receive;
pub(crate) mod rma;
pub(crate) mod send;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use hashbrown::HashMap;
use srd_proto::{Endpoint, PeerId, Qpn};

pub use api::{
    Atomic, AtomicOp, Datatype, Done, Kind, Message, Outcome, Peek, Peer, Piece, Receive, Refused,
    RemotePiece, Rma, Until, World,
};
pub use occupancy::Held;
pub use receive::matching::{Limits, Matcher, MessageKey, Offer, ReceiveKey, Want};
pub use send::order::{Family, Order};

use self::peers::connection::{Control, Link};
use self::peers::table::Entry;
use self::receive::deliver::{Kept, Multi, Posted};
use self::receive::long::Reading;
use self::receive::reorder::Partial;
use self::send::coalesce::Together;
use self::send::operation::{OPERATIONS_MAX, Op};
use crate::device::{Cq, Device, Pd, Sole};
use crate::hash::{Keyed, Numbers};
use crate::mr::{Access, Mr, Registration};
use crate::slab::{Key, Slab};

/// The queue pair of every messaging layer.
const QPN: Qpn = Qpn(1);

/// Every limit of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Operations that may be under way.
    pub operations_max: u32,
    /// Receives that may be posted, of each sort.
    pub receives_max: u32,
    /// Tell of peers' reads and writes without data, too ([`Kind::RemoteRead`]).
    pub tell_remote: bool,
    /// Secret that tables are keyed with.
    pub seed: u64,
}

/// A piece of memory that peers may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// What [`crate::Memory`] knows it by.
    pub region: u64,
    /// The address of its first byte, as peers name it.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// Its key: unique here, and the caller's choice.
    pub rkey: u64,
    /// What peers may do.
    pub access: Access,
}

impl Shared {
    /// Registers it.
    pub(crate) fn register(self, device: &mut Device, pd: Pd) -> Result<Mr, Refused> {
        let Self { region, addr, length, rkey, mut access } = self;
        // Who may write from afar may be written to.
        access.local_write |= access.remote_write;
        let registration = Registration { region, addr, length, access };
        device.reg_mr_as(pd, registration, rkey).map_err(|error| match error {
            crate::CreateError::Full => Refused::Again,
            _ => Refused::Invalid,
        })
    }
}

/// What was counted since the endpoint was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RdmCounters {
    /// Refused: what no sender writes.
    pub malformed: u64,
    /// Refused: for another run of this endpoint, or under a session that is not open.
    pub stale: u64,
    /// Refused for now: no room.
    pub rnr: u64,
    /// Refused: memory that may not be used so.
    pub bad_address: u64,
    /// Words that nobody waits for: an answer, credit, a receipt or a result for what is not under
    /// way. Taken, and without effect.
    pub unasked: u64,
    /// Messages that came before their turn.
    pub early: u64,
    /// Messages that found no receive.
    pub unexpected: u64,
    /// Sessions that we opened.
    pub sessions: u64,
    /// Messages sent as long ones because there was no credit for their bytes.
    pub long_for_credit: u64,
    /// Messages sent again because the peer had forgotten the session.
    pub sent_again: u64,
}

/// Limits that follow from the configuration, or that nobody has needed to change.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    operations_max: u32,
    /// Ends of operations that may stand unpolled before nothing more is taken.
    dones_max: usize,
    /// Peers by number.
    peers_max: u32,
    /// Peers that only wrote to us: the rest of the numbers is the application's.
    strangers_max: u32,
    /// Greetings of peers that may wait for the next pump.
    hellos_max: usize,
    /// The longest message that is sent without being asked for.
    medium_bytes_max: u64,
    /// The shortest that is worth being read by its receiver.
    long_bytes_min: u64,
    /// Bytes kept of what came before its turn.
    reorder_bytes_max: usize,
    /// The same of one peer.
    reorder_link_bytes_max: usize,
    /// How far ahead of its turn a message may come.
    reorder_ids_max: u32,
    /// Credit of all senders together, and the most and the least of one.
    credit_bytes: u64,
    window_bytes_max: u64,
    window_bytes_min: u64,
    /// Reads of long messages under way.
    reads_max: u32,
    /// Bytes of one request to read or write.
    read_bytes_max: u64,
}

impl Bounds {
    fn of(config: &Config) -> Self {
        let operations_max = config.operations_max.clamp(1, OPERATIONS_MAX);
        Self {
            operations_max,
            dones_max: operations_max as usize + 2 * config.receives_max as usize + 64,
            peers_max: 1 << 20,
            strangers_max: 1 << 19,
            hellos_max: 4096,
            medium_bytes_max: 65_536,
            long_bytes_min: 1024,
            reorder_bytes_max: 64 << 20,
            reorder_link_bytes_max: 2 << 20,
            reorder_ids_max: 1 << 14,
            credit_bytes: 64 << 20,
            window_bytes_max: 1 << 20,
            window_bytes_min: 16 << 10,
            reads_max: 16,
            read_bytes_max: crate::RDMA_BYTES_MAX.into(),
        }
    }
}

/// A reliable datagram endpoint. Bounds: those of its [`Config`], and credit for messages that
/// nobody has asked for.
#[derive(Debug)]
pub struct Rdm {
    config: Config,
    bounds: Bounds,
    own: SocketAddr,
    incarnation: u64,
    /// What travels of our own Q key.
    own_check: u32,
    payload_bytes_max: usize,
    device: Device,
    pd: Pd,
    cq: Cq,
    /// The local key of all memory.
    lkey: u32,
    numbers: Numbers,
    entries: Vec<Option<Entry>>,
    /// Numbers below the highest that no peer has.
    free: BTreeSet<u32>,
    by_name: HashMap<(SocketAddr, u64), u32, Keyed>,
    /// By the transport's number of the peer.
    links: Vec<Option<Box<Link>>>,
    links_count: u32,
    /// Links whose peers the application has not named, how many there are, and those that it
    /// needs no more, or that are gone: the transport may forget them.
    strangers: VecDeque<PeerId>,
    strangers_count: u32,
    /// A stranger was turned away since the last look for some that have gone.
    crowded: bool,
    released: Vec<PeerId>,
    ops: Slab<Op>,
    order: Order,
    controls: Slab<Control>,
    /// Datagrams of several messages.
    together: Slab<Together>,
    /// Links to which a message was handed over since the application last looked, and how many
    /// of them have others that wait to join.
    bursts: Vec<u32>,
    held: u32,
    /// The last call made nothing that should leave now.
    lazy: bool,
    tagged: Matcher<Posted, Kept>,
    plain: Matcher<Posted, Kept>,
    multis: Slab<Multi>,
    /// Operations by the local keys of memory that a receiver may read.
    shared_by: HashMap<u32, Key, Keyed>,
    /// What the application lets peers use, by key.
    shares: HashMap<u64, Mr, Keyed>,
    /// Long messages that are being read, links with some of which more is to be asked for,
    /// requests under way, and whether more may be asked for than at the last look.
    readings: Slab<Reading>,
    reads_waiting: VecDeque<u32>,
    reads_active: u32,
    reads_changed: bool,
    /// Claimed messages by context, and whether they have tags.
    claims: HashMap<(u64, bool), MessageKey, Keyed>,
    /// Messages of which a part has come, or that came before their turn: by link and id.
    partials: BTreeMap<(u32, u32), Partial>,
    reorder_bytes: usize,
    /// Greetings that wait for the next pump.
    hellos: VecDeque<(PeerId, peers::handshake::Hello)>,
    /// Links that have something to send, or whose messages could not go on.
    ready: VecDeque<u32>,
    stalled: Vec<u32>,
    session_next: u32,
    done: VecDeque<Done>,
    counters: RdmCounters,
}

impl Rdm {
    /// An endpoint over the transport's. `own` is our address, and `incarnation` the run of this
    /// endpoint as addresses name it: not zero, and another one for every run.
    ///
    /// # Panics
    /// Never: a new device has room for what this makes.
    pub fn new(config: Config, endpoint: &mut Endpoint, own: SocketAddr, incarnation: u64) -> Self {
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
        let sole = Sole::new(limits, endpoint, wire::qkey_of(incarnation), 7);
        let Sole { device, pd, cq, lkey } = sole;
        let messages_max = u32::try_from(bounds.credit_bytes / peers::connection::MESSAGE_COST);
        let limits = Limits {
            receives_max: config.receives_max,
            messages_max: messages_max.unwrap_or(u32::MAX),
        };
        let state = || Keyed::new(config.seed);
        Self {
            own,
            incarnation,
            own_check: wire::run_check(incarnation),
            payload_bytes_max: endpoint.payload_bytes_max(),
            device,
            pd,
            cq,
            lkey,
            numbers: Numbers::new(config.seed),
            entries: Vec::new(),
            free: BTreeSet::new(),
            by_name: HashMap::with_hasher(state()),
            links: Vec::new(),
            links_count: 0,
            strangers: VecDeque::new(),
            strangers_count: 0,
            crowded: false,
            released: Vec::new(),
            ops: Slab::default(),
            order: Order::default(),
            controls: Slab::default(),
            together: Slab::default(),
            bursts: Vec::new(),
            held: 0,
            lazy: false,
            tagged: Matcher::new(limits, config.seed),
            plain: Matcher::new(limits, config.seed),
            multis: Slab::default(),
            shared_by: HashMap::with_hasher(state()),
            shares: HashMap::with_hasher(state()),
            readings: Slab::default(),
            reads_waiting: VecDeque::new(),
            reads_active: 0,
            reads_changed: false,
            claims: HashMap::with_hasher(state()),
            partials: BTreeMap::new(),
            reorder_bytes: 0,
            hellos: VecDeque::new(),
            ready: VecDeque::new(),
            stalled: Vec::new(),
            session_next: 0,
            done: VecDeque::new(),
            counters: RdmCounters::default(),
            config,
            bounds,
        }
    }

    /// Bytes that an injected message may have.
    pub fn inject_bytes_max(&self) -> u64 {
        let room = self.payload_bytes_max - wire::MESSAGE_HEADER_MAX;
        (room as u64).min(self.bounds.window_bytes_min / 2)
    }

    /// Bytes that an atomic operation may name: small enough for every path.
    pub fn atomic_bytes_max(&self, compare: bool) -> u64 {
        let header = wire::BASE_BYTES + 8 + iovec::PIECES_MAX * wire::ATOMIC_PIECE_BYTES;
        let room = self.payload_bytes_max.saturating_sub(header).min(1024) as u64;
        // Whole elements of every type.
        (if compare { room / 2 } else { room }) & !15
    }

    /// The counters.
    pub fn counters(&self) -> &RdmCounters {
        &self.counters
    }

    /// The counters of reads and writes.
    pub fn device_counters(&self) -> &crate::Counters {
        self.device.counters()
    }

    /// The oldest end of something.
    pub fn poll(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Whether nothing is under way that a peer waits for: what was sent has been acknowledged, and
    /// no answer is owed.
    pub fn is_quiet(&self) -> bool {
        self.ops.len() == 0
            && self.controls.len() == 0
            && self.hellos.is_empty()
            && self.stalled.is_empty()
            && self.readings.len() == 0
            && self.device.is_quiet()
    }

    /// Whether there is anything for [`Self::pump`] to look after that no event of the transport
    /// will tell of.
    pub fn has_work(&self) -> bool {
        !(self.ready.is_empty()
            && self.stalled.is_empty()
            && self.hellos.is_empty()
            && self.released.is_empty()
            && !self.crowded
            && !self.can_ask_reads())
    }

    /// Whether what ended must be polled before more is taken.
    fn is_full(&self) -> bool {
        self.done.len() >= self.bounds.dones_max
    }

    /// Sends on what waits, as far as the transport takes it. Returns whether it took anything.
    pub fn pump(&mut self, world: &mut World<'_>) -> bool {
        let mut took = self.device.pump(world.now, world.endpoint, world.memory) > 0;
        while let Some(completion) = self.device.poll_cq(self.cq) {
            self.completed(&completion);
            took = true;
        }
        self.take_notes();
        self.release_peers(world);
        took |= self.ask_reads(world);
        took |= self.greet_back(world);
        for link in core::mem::take(&mut self.stalled) {
            took |= self.advance(link, world.memory);
        }
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { break };
            if let Some(link) = self.link_mut(index) {
                link.ready = false;
                took |= self.flush(world, index);
            }
        }
        took
    }
}
