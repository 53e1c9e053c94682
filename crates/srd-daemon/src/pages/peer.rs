//! Figures of one peer: a row for each worker, and their combination.
//!
//! **Is the peer up?** Every worker has its own context with a peer, or no context yet: it opens
//! one when it has a packet to send, or when the peer opens one. A context that was never opened
//! ([`Link::Untried`]) is ignored. If any other context is up, the peer counts as up: each worker
//! detects on its own, within the time-out of a peer, that the peer no longer answers.
//!
//! | contexts | the peer is |
//! |---|---|
//! | at least one is up | up |
//! | no context is up, at least one is down | down |
//! | no context was opened yet | connecting |
//!
//! Consequently, a peer that fails is down when the last worker that communicated with it has
//! detected the failure. If the handshakes of one worker fail while the peer answers other workers,
//! the peer is up.
//!
//! **Counters** are added up. **Gauges** of a context (round trips, delays, paths) are those of the
//! context that carries most bytes. Windows and rates are added up over the contexts that are up. A
//! peer's row stays when its context is created again, and its counters continue.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use srd_card::{Reach, Traffic};
use srd_proto::{ADDRESSES_MAX, Instant, PeerStats, Unreachable};

use super::figure::{Figure, Sum, choices, figures};
use super::page::Page;
use crate::run::evidence::Evidence;
use crate::snapshot::PeerState;

/// State of a worker's context with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Link {
    /// The context was never opened.
    #[default]
    Untried,
    /// The peer answers.
    Up,
    /// Handshakes were sent to the peer, and it does not answer.
    Down,
}

choices!(Link { 0: Link::Untried, 1: Link::Up, 2: Link::Down });

/// Figures of one peer as one worker sees it: the contents of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerFigures {
    pub(crate) link: Link,
    /// Number of times that a context with the peer came up: handshakes that ended with a session.
    pub(crate) ups: u64,
    /// Number of times that a context with the peer went down.
    pub(crate) downs: u64,
    /// Time when a context with the peer last came up.
    pub(crate) up_at: Instant,
    /// Evidence of the reason why the peer does not answer.
    pub(crate) evidence: Evidence,
    /// Error number of the system if this machine refused to send to the peer; `None` if it did
    /// not.
    pub(crate) refusal: Option<i32>,
    /// The last ICMP error for packets to the peer; `None` if there was no error.
    pub(crate) unreachable: Option<Unreachable>,
    /// Inner source address of the last packet from the peer that was refused because of it; `None`
    /// if no packet was refused. The port is not used.
    pub(crate) refused_from: Option<SocketAddr>,
    /// Known outer addresses of the peer; unused entries are `None`.
    pub(crate) addresses: [Option<SocketAddr>; ADDRESSES_MAX],
    pub(crate) reach: Reach,
    pub(crate) traffic: Traffic,
    pub(crate) retrans_pkts: u64,
    pub(crate) queued_bytes: u64,
    pub(crate) packet_bytes_max: u16,
    pub(crate) stats: PeerStats,
}

impl Default for PeerFigures {
    fn default() -> Self {
        Self {
            link: Link::Untried,
            ups: 0,
            downs: 0,
            up_at: Instant::ZERO,
            evidence: Evidence::default(),
            refusal: None,
            unreachable: None,
            refused_from: None,
            addresses: [None; ADDRESSES_MAX],
            reach: Reach::Off,
            traffic: Traffic::default(),
            retrans_pkts: 0,
            queued_bytes: 0,
            packet_bytes_max: 0,
            stats: PeerStats::default(),
        }
    }
}

figures!(PeerFigures {
    link: Link,
    ups: u64,
    downs: u64,
    up_at: Instant,
    evidence: Evidence,
    refusal: Option<i32>,
    unreachable: Option<Unreachable>,
    refused_from: Option<SocketAddr>,
    addresses: [Option<SocketAddr>; ADDRESSES_MAX],
    reach: Reach,
    traffic: Traffic,
    retrans_pkts: u64,
    queued_bytes: u64,
    packet_bytes_max: u16,
    stats: PeerStats,
});

impl PeerFigures {
    fn moved_bytes(&self) -> u64 {
        let Traffic { srd_tx_bytes, srd_rx_bytes, plain_tx_bytes, plain_rx_bytes, .. } =
            self.traffic;
        srd_tx_bytes + srd_rx_bytes + plain_tx_bytes + plain_rx_bytes
    }

    /// Combines the rows of all workers for one peer. Without rows, returns the default value.
    pub(crate) fn together(rows: &[Self]) -> Self {
        let carries_most = |row: &&Self| (row.link == Link::Up, row.moved_bytes());
        let mut all = rows.iter().max_by_key(carries_most).copied().unwrap_or_default();
        let primary = all;
        all.link = link_of(rows.iter().map(|row| row.link));
        all.up_at = rows.iter().map(|row| row.up_at).max().unwrap_or_default();
        all.evidence = Evidence::strongest(rows.iter().map(|row| row.evidence));
        all.refusal = primary.refusal.or_else(|| rows.iter().find_map(|row| row.refusal));
        all.unreachable =
            primary.unreachable.or_else(|| rows.iter().find_map(|row| row.unreachable));
        all.refused_from =
            primary.refused_from.or_else(|| rows.iter().find_map(|row| row.refused_from));
        all.reach = rows.iter().map(|row| row.reach).max_by_key(rank).unwrap_or(Reach::Off);
        let sum = |of: fn(&Self) -> u64| rows.iter().map(of).sum::<u64>();
        (all.ups, all.downs) = (sum(|row| row.ups), sum(|row| row.downs));
        (all.queued_bytes, all.retrans_pkts) = (sum(|r| r.queued_bytes), sum(|r| r.retrans_pkts));
        all.traffic = Traffic::default();
        rows.iter().for_each(|row| all.traffic.add(&row.traffic));
        let up = || rows.iter().filter(|row| row.link == Link::Up);
        if up().count() > 1 {
            all.stats.window_bytes = up().map(|row| row.stats.window_bytes).sum();
            all.stats.in_flight_bytes = up().map(|row| row.stats.in_flight_bytes).sum();
            all.stats.delivery_rate_bps = up().map(|row| row.stats.delivery_rate_bps).sum();
            all.stats.credit_limited = up().any(|row| row.stats.credit_limited);
            let least = up().map(|row| row.packet_bytes_max).min();
            all.packet_bytes_max = least.unwrap_or(primary.packet_bytes_max);
        }
        all
    }

    /// Returns whether the peer is up, down or not tried yet.
    pub(crate) fn state(&self) -> PeerState {
        match self.link {
            Link::Untried => PeerState::Connecting,
            Link::Up => PeerState::Up,
            Link::Down => PeerState::Down,
        }
    }

    /// Returns the known outer addresses of the peer.
    pub(crate) fn known_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.into_iter().flatten().filter(|address| address.port() != 0)
    }
}

/// Returns the state of a peer from the states of its contexts: up before down, and down before
/// untried.
fn link_of(links: impl Iterator<Item = Link>) -> Link {
    let more = |best: Link, link: Link| match (best, link) {
        (Link::Up, _) | (_, Link::Up) => Link::Up,
        (Link::Down, _) | (_, Link::Down) => Link::Down,
        _ => Link::Untried,
    };
    links.fold(Link::Untried, more)
}

/// Rank for the choice between the contexts of one peer: the context that carries most kinds of
/// packets over SRD has the highest rank.
fn rank(reach: &Reach) -> u8 {
    match reach {
        Reach::Off => 0,
        Reach::Waiting => 1,
        Reach::Express { udp, tunnels } => 2 + u8::from(*udp) + u8::from(*tunnels),
    }
}

/// All figures of one peer, which its writers and any readers share.
#[derive(Debug)]
pub(crate) struct PeerPage {
    /// One row for each worker; only that worker writes it.
    pub(crate) rows: Box<[Page<PeerFigures>]>,
    /// Rates of inner packets to the peer (`tx_bps`) and from it (`rx_bps`) over the last second,
    /// in bits per second. The control thread writes both.
    tx_bps: AtomicU64,
    rx_bps: AtomicU64,
}

impl PeerPage {
    pub(crate) fn new(workers: usize) -> Self {
        let rows = (0..workers).map(|_| Page::default()).collect();
        Self { rows, tx_bps: AtomicU64::new(0), rx_bps: AtomicU64::new(0) }
    }

    /// Reads the rows of all workers.
    pub(crate) fn read(&self) -> Vec<PeerFigures> {
        self.rows.iter().map(Page::read).collect()
    }

    pub(crate) fn set_rates(&self, [tx_bps, rx_bps]: [u64; 2]) {
        self.tx_bps.store(tx_bps, Ordering::Relaxed);
        self.rx_bps.store(rx_bps, Ordering::Relaxed);
    }

    pub(crate) fn rates(&self) -> [u64; 2] {
        [self.tx_bps.load(Ordering::Relaxed), self.rx_bps.load(Ordering::Relaxed)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_proto::Diagnosis;

    fn row(link: Link, bytes: u64) -> PeerFigures {
        let traffic = Traffic { srd_tx_bytes: bytes, srd_tx_pkts: 1, ..Traffic::default() };
        let stats = PeerStats { rtt_smoothed_ns: bytes, window_bytes: 10, ..PeerStats::default() };
        PeerFigures { link, traffic, stats, packet_bytes_max: 9000, ..PeerFigures::default() }
    }

    #[test]
    fn one_context_that_is_up_suffices_and_one_that_was_never_opened_has_no_vote() {
        let state = |links: &[Link]| {
            let rows: Vec<_> = links.iter().map(|link| row(*link, 0)).collect();
            PeerFigures::together(&rows).state()
        };
        assert_eq!(state(&[]), PeerState::Connecting);
        assert_eq!(state(&[Link::Untried, Link::Untried]), PeerState::Connecting);
        assert_eq!(state(&[Link::Up, Link::Untried]), PeerState::Up);
        assert_eq!(state(&[Link::Down, Link::Up]), PeerState::Up);
        assert_eq!(state(&[Link::Down, Link::Untried]), PeerState::Down);
        assert_eq!(state(&[Link::Down, Link::Down]), PeerState::Down);
    }

    #[test]
    fn counters_add_up_and_gauges_are_of_the_context_that_carries_most() {
        let rows = [row(Link::Up, 100), row(Link::Up, 900), row(Link::Down, 5000)];
        let all = PeerFigures::together(&rows);
        assert_eq!((all.traffic.srd_tx_bytes, all.traffic.srd_tx_pkts), (6000, 3));
        assert_eq!((all.stats.rtt_smoothed_ns, all.stats.window_bytes), (900, 20));
    }

    #[test]
    fn what_any_worker_has_seen_of_a_silent_peer_is_told() {
        let mut seen = row(Link::Down, 0);
        seen.evidence.saw(Diagnosis::OtherVersion);
        let mut heard_nothing = row(Link::Down, 1);
        heard_nothing.evidence.saw(Diagnosis::NothingReceived);
        heard_nothing.refusal = Some(101);
        let all = PeerFigures::together(&[seen, heard_nothing]);
        assert_eq!(all.evidence, seen.evidence);
        assert_eq!(all.refusal, Some(101));
    }

    #[test]
    fn a_row_comes_back_as_it_was_written() {
        let page = PeerPage::new(2);
        let mut wanted = row(Link::Up, 77);
        wanted.addresses[1] = Some("[2001:db8::1]:7471".parse().unwrap());
        wanted.evidence.saw(Diagnosis::UnknownKey([9; 32]));
        wanted.reach = Reach::Express { udp: false, tunnels: true };
        page.rows[1].publish(&wanted);
        let read = page.read();
        assert_eq!(format!("{:?}", read[1]), format!("{wanted:?}"));
        assert_eq!(read[0].link, Link::Untried);
    }
}
