//! A peer: everything kept about one remote node, shared by every queue pair that talks to
//! it. This file holds the fields; the verbs are in the files beside it.
//!
//! Sending and receiving halves are made when first used, so that a node which only receives
//! from ten thousand others does not keep ten thousand path tables.

mod acked;
mod acknowledge;
mod addresses;
#[cfg(debug_assertions)]
mod audit;
mod close;
mod control_paths;
mod encode;
mod exhausted;
mod handshake;
mod hibernation;
mod lifecycle;
mod mtu;
mod plan;
mod recv;
mod roam;
mod silence;
mod timeout;
mod unreliable;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::cc::Window;
use crate::config::Config;
use crate::credit::Share;
use crate::crypto::ReplayWindow;
use crate::delay::{DelayEstimator, RttEstimator};
use crate::event::{Datagram, Status};
use crate::ids::{Entropy, Epoch, PathId, PeerId};
use crate::pacer::Pacer;
use crate::path::PathSet;
use crate::received::Received;
use crate::send_queue::SendQueue;
use crate::sent_packets::SentPackets;
use crate::stats::PeerStats;
use crate::time::{Duration, Instant};
use crate::wire::ack::{self, Tuple};
use crate::wire::handshake::COOKIE_BYTES;

use acknowledge::ack_room;
pub(crate) use addresses::{Further, ReplyRoute};
pub(crate) use close::CLOSES;
use control_paths::ControlPaths;
pub(crate) use encode::bare_header;
use handshake::Protected;
use hibernation::Hibernated;
use mtu::Mtu;
pub(crate) use recv::{Accepted, DataPacket};
use roam::Home;
pub(crate) use roam::same_ip;
use silence::{Hints, Silence};
use timeout::FirstProbe;
pub(crate) use unreliable::{read_unreliable, unreliable_overhead};

/// Datagram header bytes: what a datagram costs beside its payload, in windows and credit.
pub(crate) const DATAGRAM_HEADER_BYTES: usize =
    crate::wire::HEADER_BYTES + crate::wire::data::DATA_BYTES;
/// What a new context may send before the first packet of the receiver, in percent of the
/// bandwidth-delay product.
const UNSOLICITED_PERCENT: u64 = 150;
/// Probes that may be unanswered at a time.
const PROBES_MAX: usize = 256;
/// Echoes that may wait for an acknowledgement to carry them.
const ECHOES_MAX: usize = 128;

/// Packets of interactive mode that may wait for one acknowledgement together.
pub(crate) const INTERACTIVE_PACKETS_MAX: u64 = 32;

/// One remote node.
#[derive(Debug)]
pub(crate) struct Peer {
    pub id: PeerId,
    pub address: SocketAddr,
    /// The number of the shard of its node that calls this one. Ours, if the application named the
    /// peer: shard `i` calls shard `i` where there is one (H16).
    pub partner: u8,
    /// Where it was named, if it has left that address.
    pub home: Option<Box<Home>>,
    /// Our number for this context: what the peer writes into its packets.
    pub local_context: u32,
    /// The peer's number, zero until it is known.
    pub remote_context: u32,
    pub remote_epoch: Option<Epoch>,
    /// The run and context of the peer whose receiving half was removed: packets of it must not be
    /// taken for new ones.
    pub tombstone: Option<(Epoch, u32)>,
    /// Added to the endpoint's epoch: how often this context was begun anew.
    pub epoch_bump: u64,
    /// The application named it, so it stays when its context goes.
    pub configured: bool,
    /// The peer has used our number, so it needs no greeting any more.
    pub greeted: bool,
    /// Anything has come from the peer in this session.
    pub has_received: bool,
    pub received_at_last: Instant,
    /// When data was first sent to it since then; [`Instant::FAR_FUTURE`]: none was.
    pub first_sent_at: Instant,
    /// ICMP errors about the peer since then.
    pub hints: Option<Hints>,
    /// Datagrams that the peer has sent us and that we may be about to answer, up to a bound.
    pub to_answer: u64,
    /// Whether the endpoint has this peer in its ready queue.
    pub queued_ready: bool,
    /// Whether it stands in the queue for the endpoint's own link.
    pub awaits_link: bool,
    /// When the endpoint wakes it.
    pub wake_at: Instant,
    /// The paths that openings and answers to them take.
    pub control_paths: ControlPaths,
    /// Next control packet number.
    pub control_number: u64,
    /// Highest control number seen, plus one.
    pub control_seen: u64,
    /// Control numbers seen under the session, once there are any.
    pub control_window: Option<Box<ReplayWindow>>,
    pub protected: Protected,
    /// The cookie that the peer has last demanded; zero: none. Outlives openings and sessions.
    pub cookie: [u8; COOKIE_BYTES],
    /// Sessions that we have begun to open.
    pub openings: u64,
    pub guard: Guard,
    /// Closes that are still to be sent.
    pub close_left: u8,
    /// Where the endpoint lists it, which its address may have left.
    pub listed_at: Option<SocketAddr>,
    /// What was known of it beforehand.
    pub keys: Option<Box<PeerKeys>>,
    pub seed: u64,
    pub tx: Option<Box<Tx>>,
    /// What is kept of the sending half while the context hibernates. Never beside `tx`.
    pub hibernated: Option<Box<Hibernated>>,
    pub rx: Option<Box<Rx>>,
}

/// What senders from a peer's address may still cost: a sender does not have to be the peer to
/// write from there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Guard {
    /// When an allowance of openings would be full again.
    pub openings_due: Instant,
    /// What has been reported, and until when that counts.
    pub diagnosed: u8,
    pub diagnosed_until: Instant,
}

/// What a peer is known by, and where it is beside its address.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerKeys {
    /// Its static public key.
    pub public_key: Option<[u8; 32]>,
    /// What we share with it beside; all zeros: nothing.
    pub preshared_key: [u8; 32],
    /// Its other addresses, if it was named with several: the first ones.
    pub further: Further,
}

/// Why a probe was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProbeKind {
    /// To learn what became of the tail.
    Tail,
    /// To learn whether a bad path has come back.
    Path(PathId),
    /// To learn whether the fabric passes packets of this many UDP payload bytes, on a path.
    Mtu(u16, PathId),
}

/// A probe that is out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutProbe {
    pub number: u32,
    pub kind: ProbeKind,
    pub path: PathId,
    pub sent_at: Instant,
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Tx {
    pub queue: SendQueue,
    /// Unreliable datagrams that wait, each with the path that it is to take.
    pub unreliable: VecDeque<(Entropy, Datagram)>,
    /// The number of the newest of them that was sent, plus one.
    pub unreliable_sent: u64,
    pub sent: SentPackets,
    pub paths: PathSet,
    pub delay: DelayEstimator,
    pub rtt: RttEstimator,
    pub window: Window,
    pub pacer: Pacer,
    /// Which PSNs the peer has acknowledged, over the same window as its own.
    pub known: Box<[u64]>,
    /// Everything below was processed as cumulative.
    pub cumulative: u64,
    /// Bytes ever queued; less those that were withdrawn.
    pub queued_bytes: u64,
    /// Bytes of datagrams that have been settled by the peer.
    pub settled_bytes: u64,
    /// Bytes settled plus bytes in flight may reach this credit limit.
    pub credit_limit: u64,
    pub credit_limited: bool,
    /// Whether the receiver has sent a credit limit yet, or that there is none.
    pub credit_received: bool,
    /// When the newest acknowledged packet (or answered probe) had been sent.
    pub newest_acked_sent_at: Instant,
    /// When the newest answered probe had been sent.
    pub newest_answered_sent_at: Instant,
    pub largest_acked: Option<u64>,
    pub last_sent_at: Instant,
    /// Data packets sent again.
    pub retrans_pkts: u64,
    pub last_progress_at: Instant,
    /// How long the peer has owed an answer.
    pub silence: Silence,
    pub probe_at: Instant,
    pub first_probe: FirstProbe,
    pub probe_backoff: u8,
    pub rto_at: Instant,
    pub rto_backoff: u8,
    /// How often in a row a probe was answered and nothing else: the peer is there, and what was
    /// sent to it is not.
    pub futile: u8,
    pub futile_at: Instant,
    /// What is sent again waits until then.
    pub again_at: Instant,
    pub probes: VecDeque<OutProbe>,
    /// The tail probe that is due now.
    pub probe_due: bool,
    /// The newest packet was sent in interactive mode: its acknowledgement may be delayed.
    pub interactive: bool,
    /// Widening of the reordering window after losses that were none, in eighths.
    pub reorder_eighths: u32,
    pub largest_packet: u16,
    /// Refused datagrams wait until then.
    pub rnr_until: Instant,
    pub rnr_backoff: Duration,
    pub mtu: Mtu,
    /// The PSN window was used up and given up; the receiver's count of bytes then.
    pub abandoned: Option<u32>,
    /// When the pacer lets the next datagram go, if that is what it waits for.
    pub departure_at: Instant,
}

/// A packet that arrived and whose datagram was refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub psn: u64,
    /// The datagram's identity: another packet of it gets the same verdict.
    pub first: u64,
    pub status: Status,
}

/// The receiving half.
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
    /// Refused PSNs above the floor. Every acknowledgement names as many as fit, and leaves
    /// the others out of what it acknowledges.
    pub verdicts: Vec<Refusal>,
    /// Where the next acknowledgement begins in that list.
    pub verdict_cursor: usize,
    pub echoes: VecDeque<(u32, u32)>,
    pub ack_entropy: u16,
}

/// What a datagram's packet holds beside the payload.
pub(crate) fn packet_overhead(config: &Config) -> usize {
    let tag = if config.protection.is_on() { crate::wire::TAG_BYTES } else { 0 };
    DATAGRAM_HEADER_BYTES + tag
}

/// PSNs that a context's sender may use at a time: no more than the peer's acknowledgements,
/// which keep to the packet size, have SACK words for.
pub(crate) fn psn_window(config: &Config) -> usize {
    // D6
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

    /// The sending half, made on first use, and again after hibernation.
    pub(crate) fn tx(&mut self, config: &Config, now: Instant) -> &mut Tx {
        let (seed, ip, hibernated) = (self.seed, self.address.ip(), &mut self.hibernated);
        self.tx.get_or_insert_with(|| match hibernated.take() {
            None => Box::new(Tx::new(config, ip, seed, now)),
            Some(kept) => Box::new(kept.wake(config, ip, seed, now)),
        })
    }

    /// The receiving half, made on first use.
    pub(crate) fn rx(&mut self, config: &Config) -> &mut Rx {
        let seed = self.seed;
        self.rx.get_or_insert_with(|| Box::new(Rx::new(config, seed)))
    }

    /// Whether there is anything to remember of it.
    pub(crate) fn has_context(&self) -> bool {
        let sends = self.tx.is_some() || self.hibernated.is_some();
        sends || self.rx.is_some() || self.protected.session.is_some()
    }

    /// A summary for monitoring.
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
            // R5. At least one packet, or the context could never begin.
            credit_limit: (window.bdp_bytes() * UNSOLICITED_PERCENT / 100)
                .max(config.packet_bytes_to(ip).into()),
            window,
            pacer: Pacer::new(now),
            known: vec![0; usize::from(config.window_packets_max / 64)].into(),
            cumulative: 0,
            queued_bytes: 0,
            settled_bytes: 0,
            credit_limited: true,
            credit_received: false,
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
            reorder_eighths: 8,
            largest_packet: 0,
            rnr_until: Instant::ZERO,
            rnr_backoff: Duration::ZERO,
            mtu: Mtu::new(config, ip, now),
            abandoned: None,
            departure_at: Instant::FAR_FUTURE,
        };
        tx.set_pace(config);
        tx
    }

    /// How long a path's confirmation counts.
    pub(crate) fn fresh(&self) -> Duration {
        self.rtt.base().times(2) + self.delay.median()
    }

    /// Takes over what the window and the round trip have become.
    pub(crate) fn set_pace(&mut self, config: &Config) {
        // C12
        let burst_bytes =
            u64::from(config.packet_bytes_max) * u64::from(config.spray_burst_packets.max(4));
        let rate_bps = self.window.pacing_rate_bps(self.rtt.smoothed()).max(1);
        self.pacer.set_pace(rate_bps, burst_bytes);
    }

    /// Time by which a packet may be overtaken before it counts as lost (L2), where paths are as
    /// far apart as `spread`.
    fn reordering_window(&self, spread: Duration) -> Duration {
        let base = self.rtt.base();
        base.over(4).max(spread + base.over(8)).times(self.reorder_eighths.into()).over(8)
    }

    /// What was sent before this is lost if it has not arrived (L2).
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
