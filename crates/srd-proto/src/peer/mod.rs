//! A peer: the state of one remote node, shared by every queue pair that communicates with it. This
//! file contains the fields; the methods are in the modules of this folder.
//!
//! | module | contents |
//! |---|---|
//! | `context` | how the context with a peer begins, changes and ends |
//! | `plan`, `encode` | the decision about the next packet; its bytes |
//! | `recv` | received packets |
//! | `acknowledge`, `acked` | acknowledgements that leave; the effects of those that arrive |
//! | `unreliable` | datagrams without acknowledgement |
//! | `timeout`, `exhausted` | timers; a PSN window that is full of lost packets |
//! | `mtu`, `control_paths` | the largest packet; the paths of control packets |
//! | `audit` | invariants, checked in debug builds |
//!
//! The sending and the receiving half are created at first use. So a node that only receives from
//! ten thousand other nodes does not keep ten thousand tables of paths.

mod acked;
mod acknowledge;
#[cfg(debug_assertions)]
mod audit;
mod context;
mod control_paths;
mod encode;
mod exhausted;
mod mtu;
mod plan;
mod recv;
mod timeout;
mod unreliable;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::config::Config;
use crate::crypto::ReplayWindow;
use crate::event::{Datagram, Status};
use crate::ids::{Entropy, Epoch, PathId, PeerId};
use crate::path::PathSet;
use crate::received::Received;
use crate::send::cc::Window;
use crate::send::credit::Share;
use crate::send::delay::{DelayEstimator, RttEstimator};
use crate::send::pacer::Pacer;
use crate::send::send_queue::SendQueue;
use crate::send::sent_packets::SentPackets;
use crate::stats::PeerStats;
use crate::time::{Duration, Instant};
use crate::wire::ack::{self, Tuple};
use crate::wire::handshake::COOKIE_BYTES;

use acknowledge::ack_room;
pub(crate) use context::addresses::{Further, ReplyRoute};
pub(crate) use context::close::CLOSES;
use context::handshake::Protected;
use context::hibernation::Hibernated;
use context::roam::Home;
pub(crate) use context::roam::{same_ip, with_port, without_link};
use context::silence::{Hints, Silence};
use control_paths::ControlPaths;
pub(crate) use encode::bare_header;
use mtu::Mtu;
pub(crate) use plan::Plan;
pub(crate) use recv::{Accepted, DataPacket};
use timeout::FirstProbe;
pub(crate) use unreliable::{read_unreliable, unreliable_overhead};

/// Bytes of a datagram's header. Windows and credit count them in addition to the payload.
pub(crate) const DATAGRAM_HEADER_BYTES: usize =
    crate::wire::HEADER_BYTES + crate::wire::data::DATA_BYTES;
/// Maximum number of unanswered probes.
pub(crate) const PROBES_MAX: usize = 256;
/// Maximum number of answers to probes that wait to be sent.
pub(crate) const ECHOES_MAX: usize = 128;

/// Maximum number of packets of interactive mode for which one acknowledgement may wait.
pub(crate) const INTERACTIVE_PACKETS_MAX: u64 = 32;

/// The state of one remote node.
#[derive(Debug)]
pub(crate) struct Peer {
    pub id: PeerId,
    pub address: SocketAddr,
    /// Number of the shard of the peer's node that contacts this shard. If the application named
    /// the peer, it is our own number: shard `i` contacts shard `i` if it exists (H16).
    pub partner: u8,
    /// The address that the application named, if the peer has moved to another address; `None`
    /// otherwise.
    pub home: Option<Box<Home>>,
    /// Context number that we have assigned. Packets of the peer name this number.
    pub local_context: u32,
    /// Context number that the peer has assigned; zero until this number has arrived.
    pub remote_context: u32,
    pub remote_epoch: Option<Epoch>,
    /// Epoch and context number of a context of the peer that was removed here. Its packets must
    /// not create a new context.
    pub tombstone: Option<(Epoch, u32)>,
    /// Number of times that this context began anew. Greetings contain the endpoint's epoch plus
    /// this number.
    pub epoch_bump: u64,
    /// Whether the application named the peer, so that it stays when its context ends.
    pub configured: bool,
    /// Whether the peer has named our context number, so that it needs no greeting any more.
    pub greeted: bool,
    /// Whether a packet of the peer has arrived in this session.
    pub has_received: bool,
    pub received_at_last: Instant,
    /// Time when data was first sent after `received_at_last`; [`Instant::FAR_FUTURE`] if no data
    /// was sent since.
    pub first_sent_at: Instant,
    /// ICMP errors about the peer since its last packet; `None` if there was no error since.
    pub hints: Option<Hints>,
    /// Number of datagrams received from the peer less the number of data packets sent since,
    /// between 0 and [`INTERACTIVE_PACKETS_MAX`] (A4).
    pub to_answer: u64,
    /// Whether the endpoint has this peer in its ready queue.
    pub queued_ready: bool,
    /// Whether the peer is in the endpoint's queue of peers that wait for egress pacing.
    pub awaits_link: bool,
    /// Time of the scheduled wake-up, at which the endpoint runs the timers of this peer.
    pub wake_at: Instant,
    /// Entropies of the next openings and answers to openings.
    pub control_paths: ControlPaths,
    /// Number of the next control packet to the peer.
    pub control_number: u64,
    /// Highest control number received from the peer, plus one.
    pub control_seen: u64,
    /// Replay window of the control numbers received in this session; `None` before the first.
    pub control_window: Option<Box<ReplayWindow>>,
    pub protected: Protected,
    /// The newest cookie that the peer demanded; zero if it has demanded no cookie. It is kept when
    /// openings and sessions end.
    pub cookie: [u8; COOKIE_BYTES],
    /// Number of openings that we have begun in this run.
    pub openings: u64,
    pub guard: Guard,
    /// Number of copies of the Close that are still to be sent.
    pub close_left: u8,
    /// Address under which the endpoint's index by address contains the peer. The peer may have
    /// moved to another address.
    pub listed_at: Option<SocketAddr>,
    /// Keys of the peer, and its addresses after the first; `None` if the peer has neither.
    pub keys: Option<Box<PeerKeys>>,
    pub seed: u64,
    pub tx: Option<Box<Tx>>,
    /// State of the sending half while the context hibernates. `None` while there is a sending half
    /// (`tx`).
    pub hibernated: Option<Box<Hibernated>>,
    pub rx: Option<Box<Rx>>,
}

/// Limits for packets from a peer's address. The sender of such a packet may be another host that
/// uses this address.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Guard {
    /// Time from which the full number of openings may be processed in preference again (S22).
    pub openings_due: Instant,
    /// Kinds of diagnosis that were reported, one bit for each.
    pub diagnosed: u8,
    /// Time at which `diagnosed` becomes outdated: each kind may then be reported again.
    pub diagnosed_until: Instant,
}

/// Keys of a peer, and its addresses other than the first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerKeys {
    /// The peer's static public key.
    pub public_key: Option<[u8; 32]>,
    /// Pre-shared key of the two nodes (`psk2` of Noise); all zeros if there is no such key.
    pub preshared_key: [u8; 32],
    /// The addresses that the application named after the first.
    pub further: Further,
}

/// Purpose of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProbeKind {
    /// A tail probe: shows which of the last packets have arrived.
    Tail,
    /// A probe of this path: shows whether the path works.
    Path(PathId),
    /// A probe of a packet size: shows whether this path passes packets of this many UDP payload
    /// bytes.
    Mtu(u16, PathId),
}

/// A probe that was sent and not answered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutProbe {
    pub number: u32,
    pub kind: ProbeKind,
    pub path: PathId,
    pub sent_at: Instant,
}

/// Values of an acknowledgement that show whether another acknowledgement was sent before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreditSeen {
    /// Bytes that the receiver had received, modulo 2^32. The count never falls within a context.
    pub received_bytes: u32,
    /// Number of the newest acknowledgement that was a packet of its own; `None` before the first.
    pub number: Option<u32>,
}

impl CreditSeen {
    /// Whether an acknowledgement with these values was sent earlier. `number`: its control number,
    /// if it was a packet of its own.
    pub(crate) fn is_after(&self, received_bytes: u32, number: Option<u32>) -> bool {
        let before = |a: u32, b: u32| a.wrapping_sub(b).cast_signed() < 0;
        let numbers = number.zip(self.number);
        before(received_bytes, self.received_bytes) || numbers.is_some_and(|(a, b)| before(a, b))
    }
}

/// The sending half of a context.
#[derive(Debug)]
pub(crate) struct Tx {
    pub queue: SendQueue,
    /// Unreliable datagrams that wait, each with the entropy that its sender named.
    pub unreliable: VecDeque<(Entropy, Datagram)>,
    /// Control number of the newest unreliable datagram that was sent, plus one.
    pub unreliable_sent: u64,
    pub sent: SentPackets,
    pub paths: PathSet,
    pub delay: DelayEstimator,
    pub rtt: RttEstimator,
    pub window: Window,
    pub pacer: Pacer,
    /// Bitmap of the PSNs that the peer has acknowledged. It has as many bits as the PSN window.
    pub known: Box<[u64]>,
    /// All PSNs below this PSN were processed as acknowledged.
    pub cumulative: u64,
    /// Sum of the bytes of all datagrams that were ever queued for this peer, without the datagrams
    /// that were withdrawn (D13).
    pub queued_bytes: u64,
    /// Bytes of datagrams that the peer has settled.
    pub settled_bytes: u64,
    /// Credit limit: upper bound of the settled and in-flight bytes of this sender.
    pub credit_limit: u64,
    pub credit_limited: bool,
    /// The newest acknowledgement, as far as credit limits are concerned; `None` before the first.
    pub credit_seen: Option<CreditSeen>,
    /// Time of sending of the newest packet that was acknowledged, or newest probe that was
    /// answered.
    pub newest_acked_sent_at: Instant,
    /// Time of sending of the newest probe that was answered.
    pub newest_answered_sent_at: Instant,
    pub largest_acked: Option<u64>,
    pub last_sent_at: Instant,
    /// Number of data packets sent again.
    pub retrans_pkts: u64,
    pub last_progress_at: Instant,
    /// The time for which the peer has owed us an answer.
    pub silence: Silence,
    pub probe_at: Instant,
    pub first_probe: FirstProbe,
    pub probe_backoff: u8,
    pub rto_at: Instant,
    pub rto_backoff: u8,
    /// Number of times in a row that the answer to a probe showed losses, and no data was
    /// acknowledged: the peer can be reached, but the data is lost.
    pub futile: u8,
    pub futile_at: Instant,
    /// Time until which lost datagrams wait before they are sent again (E3a).
    pub again_at: Instant,
    pub probes: VecDeque<OutProbe>,
    /// Whether a tail probe is due now.
    pub probe_due: bool,
    /// Whether the newest packet was sent in interactive mode, so that its acknowledgement may be
    /// delayed.
    pub interactive: bool,
    /// PSN of the newest packet that requested an acknowledgement at once.
    pub requested_psn: u64,
    /// Reordering window in eighths of its first size. Spurious losses widen it (L3).
    pub reorder_eighths: u32,
    pub largest_packet: u16,
    /// Time until which datagrams wait that were refused for lack of a receive buffer.
    pub rnr_until: Instant,
    pub rnr_backoff: Duration,
    pub mtu: Mtu,
    /// The number of received bytes that the receiver last reported before this sender gave up the
    /// last packets of an exhausted PSN window (D14); `None` while no window is being given up.
    pub abandoned: Option<u32>,
    /// Time when the next datagram may leave, if only the pacer delays it; otherwise
    /// [`Instant::FAR_FUTURE`].
    pub departure_at: Instant,
}

/// A received packet whose datagram was refused with a verdict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub psn: u64,
    /// The datagram's identity. Another packet with this identity gets the same verdict.
    pub first: u64,
    pub status: Status,
}

/// The receiving half of a context.
#[derive(Debug)]
pub(crate) struct Rx {
    pub received: Received,
    pub share: Share,
    pub unacked_packets: u16,
    pub unacked_bytes: u32,
    pub ack_due: Instant,
    pub ack_now: bool,
    pub tuples: Vec<Tuple>,
    pub last_source_port: u16,
    /// Source port of the newest data packet or probe.
    pub newest_port: u16,
    pub ack_turn: u8,
    /// Refusals of PSNs above the floor. Every acknowledgement contains as many refusals as fit,
    /// and treats the PSNs of the other refusals as not arrived.
    pub verdicts: Vec<Refusal>,
    /// Index in `verdicts` of the first verdict that the next acknowledgement contains.
    pub verdict_cursor: usize,
    pub echoes: VecDeque<(u32, u32)>,
    pub ack_entropy: u16,
}

/// Bytes of a datagram's packet in addition to the payload.
pub(crate) fn packet_overhead(config: &Config) -> usize {
    let tag = if config.protection.is_on() { crate::wire::TAG_BYTES } else { 0 };
    DATAGRAM_HEADER_BYTES + tag
}

/// Maximum distance between the floor and the newest PSN of a sender. It is limited so that one
/// acknowledgement packet has space for the SACK words of the whole window.
pub(crate) fn psn_window(config: &Config) -> usize {
    // D6: Window of PSNs
    let tuples = usize::from(config.ack_tuples_max) * ack::TUPLE_BYTES;
    let words = (ack_room(config) - tuples) / 2 / 8;
    usize::from(config.window_packets_max).min(words * 64).max(128)
}

impl Peer {
    pub(crate) fn new(
        id: PeerId,
        address: SocketAddr,
        context: u32,
        seed: u64,
        now: Instant,
    ) -> Self {
        Self {
            id,
            address,
            partner: 0,
            home: None,
            local_context: context,
            remote_context: 0,
            remote_epoch: None,
            tombstone: None,
            epoch_bump: 0,
            configured: false,
            greeted: false,
            has_received: false,
            received_at_last: now,
            first_sent_at: Instant::FAR_FUTURE,
            hints: None,
            to_answer: 0,
            queued_ready: false,
            awaits_link: false,
            wake_at: Instant::FAR_FUTURE,
            control_paths: ControlPaths::default(),
            control_number: 0,
            control_seen: 0,
            control_window: None,
            protected: Protected::default(),
            cookie: [0; COOKIE_BYTES],
            openings: 0,
            guard: Guard::default(),
            close_left: 0,
            listed_at: None,
            keys: None,
            seed,
            tx: None,
            hibernated: None,
            rx: None,
        }
    }

    /// Returns the sending half. Creates it at first use, and again after hibernation.
    pub(crate) fn tx(&mut self, config: &Config, now: Instant) -> &mut Tx {
        let (seed, ip, hibernated) = (self.seed, self.address.ip(), &mut self.hibernated);
        self.tx.get_or_insert_with(|| match hibernated.take() {
            None => Box::new(Tx::new(config, ip, seed, now)),
            Some(kept) => Box::new(kept.wake(config, ip, seed, now)),
        })
    }

    /// Returns the receiving half. Creates it at first use.
    pub(crate) fn rx(&mut self, config: &Config) -> &mut Rx {
        let seed = self.seed;
        self.rx.get_or_insert_with(|| Box::new(Rx::new(config, seed)))
    }

    /// Whether the peer has any state of a context.
    pub(crate) fn has_context(&self) -> bool {
        let sends = self.tx.is_some() || self.hibernated.is_some();
        sends || self.rx.is_some() || self.protected.session.is_some()
    }

    /// Returns a summary for monitoring.
    pub(crate) fn stats(&self, now: Instant) -> PeerStats {
        let Some(tx) = &self.tx else { return PeerStats::default() };
        let paths = tx.paths.counts(now);
        let is_measured = tx.rtt.is_measured();
        PeerStats {
            rtt_base_ns: if is_measured { tx.rtt.base().as_nanos() } else { 0 },
            rtt_smoothed_ns: if is_measured { tx.rtt.smoothed().as_nanos() } else { 0 },
            delay_median_ns: tx.delay.median().as_nanos(),
            delay_spread_ns: tx.delay.spread().as_nanos(),
            window_bytes: tx.window.bytes(),
            in_flight_bytes: tx.sent.in_flight_bytes(),
            queued_datagrams: tx.queue.len(),
            credit_left_bytes: tx.credit_limit.cast_signed()
                - (tx.settled_bytes + tx.sent.in_flight_bytes()).cast_signed(),
            credit_limited: tx.credit_limited,
            delivery_rate_bps: tx.window.delivery_rate_bps(),
            retrans_pkts: tx.retrans_pkts,
            paths,
            paths_passing: if self.has_received { paths[0] + paths[1] } else { 0 },
        }
    }
}

impl Tx {
    fn new(config: &Config, ip: IpAddr, seed: u64, now: Instant) -> Self {
        let window = Window::new(config, now);
        let mut tx = Self {
            queue: SendQueue::default(),
            unreliable: VecDeque::new(),
            unreliable_sent: 0,
            sent: SentPackets::default(),
            paths: PathSet::new(config, seed),
            delay: DelayEstimator::new(now),
            rtt: RttEstimator::new(now, config.rtt_initial),
            // R5. At least one packet, otherwise the context could never begin.
            credit_limit: (window.bdp_bytes() * u64::from(config.unsolicited_percent) / 100)
                .max(config.packet_bytes_to(ip).into()),
            window,
            pacer: Pacer::new(now),
            known: vec![0; usize::from(config.window_packets_max / 64)].into(),
            cumulative: 0,
            queued_bytes: 0,
            settled_bytes: 0,
            credit_limited: true,
            credit_seen: None,
            newest_acked_sent_at: Instant::ZERO,
            newest_answered_sent_at: Instant::ZERO,
            largest_acked: None,
            last_sent_at: now,
            retrans_pkts: 0,
            last_progress_at: now,
            silence: Silence::NONE,
            probe_at: Instant::FAR_FUTURE,
            first_probe: FirstProbe::Answered,
            probe_backoff: 0,
            rto_at: Instant::FAR_FUTURE,
            rto_backoff: 0,
            futile: 0,
            futile_at: Instant::ZERO,
            again_at: Instant::ZERO,
            probes: VecDeque::new(),
            probe_due: false,
            interactive: false,
            requested_psn: 0,
            reorder_eighths: 8,
            largest_packet: 0,
            rnr_until: Instant::ZERO,
            rnr_backoff: Duration::ZERO,
            mtu: Mtu::new(config, ip, now),
            abandoned: None,
            departure_at: Instant::FAR_FUTURE,
        };
        tx.set_pace(now, config);
        tx
    }

    /// Counts a datagram that was queued. Makes a probe the first packet if the first window lasts
    /// for less than a round trip and is too small for the queued datagrams.
    pub(crate) fn on_queued(&mut self, bytes: u64, config: &Config) {
        self.queued_bytes += bytes;
        // R11: Probe before a short first window
        if self.credit_seen.is_none() && config.unsolicited_percent < 100 && self.probes.is_empty()
        {
            self.probe_due |= self.queued_bytes > self.credit_limit;
        }
    }

    /// Age up to which the confirmation of a path counts as recent.
    pub(crate) fn fresh(&self) -> Duration {
        self.rtt.base().times(2) + self.delay.median()
    }

    /// Updates the pacing rate after a change of the window or the round trip.
    pub(crate) fn set_pace(&mut self, now: Instant, config: &Config) {
        // C12: Pacing
        let burst_bytes =
            u64::from(config.packet_bytes_max) * u64::from(config.spray_burst_packets.max(4));
        let rate_bps = self.window.pacing_rate_bps(self.rtt.smoothed()).max(1);
        self.pacer.set_pace(now, rate_bps, burst_bytes);
    }

    /// The reordering window (L2): the time by which a packet may be overtaken before it counts as
    /// lost. `spread` is the difference between the delays of paths.
    fn reordering_window(&self, spread: Duration) -> Duration {
        let base = self.rtt.base();
        base.over(4).max(spread + base.over(8)).times(self.reorder_eighths.into()).over(8)
    }

    /// Time of sending before which a packet counts as lost, if it has not been acknowledged (L2).
    fn loss_deadline(&self) -> Instant {
        let acked = self.newest_acked_sent_at - self.reordering_window(self.delay.spread());
        let window = self.reordering_window(self.delay.spread_by_order());
        acked.max(self.newest_answered_sent_at - window)
    }
}

impl Rx {
    fn new(config: &Config, seed: u64) -> Self {
        Self {
            received: Received::new(config.window_packets_max),
            share: Share::default(),
            unacked_packets: 0,
            unacked_bytes: 0,
            ack_due: Instant::FAR_FUTURE,
            ack_now: false,
            tuples: Vec::with_capacity(config.ack_tuples_max.into()),
            last_source_port: 0,
            newest_port: 0,
            ack_turn: 0,
            verdicts: Vec::new(),
            verdict_cursor: 0,
            echoes: VecDeque::new(),
            ack_entropy: u16::try_from(seed % u64::from(config.paths)).unwrap_or(0),
        }
    }
}
