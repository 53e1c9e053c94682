//! Processes the datagrams and events that the transport delivers.

use srd_card::{Express, Guest, Partner};
use srd_net::{Application, Context, Notice, Tun};
use srd_proto::{Delivery, Event, Instant};

use super::Port;
use super::hosts::{Hosts, context_of};
use super::peers::Peers;
use crate::capture::{Direction, Tap, Taps};
use crate::plane::PeerNumber;
use crate::run::orders::{Report, Reports};

/// The interface as the card sees it. Counts the frames that the interface refuses, and copies
/// frames to captures.
#[derive(Debug)]
pub(super) struct GuestPort<P> {
    port: P,
    pub(super) refused: u64,
    /// Captures that are running.
    taps: Taps,
    /// Time at which the present frames are processed, for captures.
    now: Instant,
    /// Peer of the present frames, for captures; `None` if it is not known.
    peer: Option<PeerNumber>,
}

impl<P: Port> GuestPort<P> {
    pub(super) fn new(port: P) -> Self {
        Self { port, refused: 0, taps: Taps::default(), now: Instant::ZERO, peer: None }
    }

    pub(super) fn read(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        self.port.read()
    }

    pub(super) fn queues(&self) -> &[Tun] {
        self.port.queues()
    }

    /// Whether a capture is running.
    pub(super) fn is_watched(&self) -> bool {
        !self.taps.is_empty()
    }

    pub(super) fn add_tap(&mut self, tap: Tap) {
        self.taps.add(tap);
    }

    /// Sets the time and the peer for the captures of the following frames.
    pub(super) fn belongs_to(&mut self, now: Instant, peer: Option<PeerNumber>) {
        (self.now, self.peer) = (now, peer);
    }

    /// Copies a frame to the running captures.
    pub(super) fn show(&mut self, direction: Direction, frame: &[u8]) {
        if let Some(packet) = frame.get(srd_card::offload::OFFLOAD_BYTES..) {
            self.taps.inner(self.now, direction, self.peer, packet);
        }
    }
}

impl<P: Port> Guest for GuestPort<P> {
    fn deliver(&mut self, frame: &[u8]) {
        if !self.taps.is_empty() {
            self.show(Direction::In, frame);
        }
        if self.port.write(frame).is_err() {
            self.refused += 1;
        }
    }
}

/// The part of a worker that the transport's events and datagrams change. It is separate from the
/// endpoint, which calls it.
#[derive(Debug)]
pub(super) struct Card<P, H> {
    pub(super) express: Express,
    pub(super) port: GuestPort<P>,
    pub(super) hosts: H,
    pub(super) peers: Peers,
    pub(super) reports: Reports,
    /// Number of times that the context of a peer came up (`ups`), and that it went down (`downs`).
    pub(super) ups: u64,
    pub(super) downs: u64,
}

impl<P: Port, H: Hosts> Card<P, H> {
    pub(super) fn new(
        number: usize,
        express: Express,
        (port, hosts): (GuestPort<P>, H),
        reports: Reports,
    ) -> Self {
        Self { express, port, hosts, peers: Peers::new(number), reports, ups: 0, downs: 0 }
    }

    /// Ends waits for missing frames that have lasted too long.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.express.handle_timeout(now, &mut self.port);
        if H::MAY_EXIST {
            self.hosts.at(now);
            self.express.handle_cloud_timeout(now, &mut self.hosts);
        }
    }
}

impl<P: Port, H: Hosts> Application for Card<P, H> {
    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>) {
        if self.port.is_watched() {
            let peer = self.peers.number_of(context.core(), delivery.peer);
            self.port.belongs_to(context.now(), peer);
        }
        // If a node has more shards than ours, several contexts belong to it. The card uses one of
        // them as the node's identifier.
        let shard = context.core().partner_of(delivery.peer);
        let by = Partner { context: delivery.peer, shard };
        let delivery = Delivery { peer: context.core().node_of(delivery.peer), ..delivery };
        if H::MAY_EXIST {
            let now = context.now();
            self.hosts.at(now);
            if self.express.delivered_of_cloud(now, by, &delivery, &mut self.hosts) {
                return;
            }
        }
        self.express.delivered_by(context.now(), by, &delivery, &mut self.port);
    }

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        self.express.event(context.now(), &event);
        // A node with more shards than ours has several contexts with this worker, and the one in
        // which this worker sends decides whether the host is up.
        if H::MAY_EXIST
            && let Some(peer) = context_of(&event)
            && context.core().node_of(peer) == peer
            && let Some(slot) = self.express.slot(peer)
        {
            self.hosts.event(context.now(), slot, &event);
        }
        match event {
            Event::PeerUp { peer }
            | Event::PeerDown { peer, .. }
            | Event::Diagnosis { peer, .. } => {
                self.ups += u64::from(matches!(event, Event::PeerUp { .. }));
                self.downs += u64::from(matches!(event, Event::PeerDown { .. }));
                let now = context.now();
                let changed = self.peers.on_event(now, context.core(), &self.express, peer, &event);
                if let Some(number) = changed {
                    self.reports.send(Report::Peer(number));
                }
            }
            Event::PathMtu { peer, configured_bytes, .. } => {
                if let Some(peer) = self.peers.number_of(context.core(), peer) {
                    self.reports.send(Report::PathMtu { peer, configured_bytes });
                }
            }
            _ => {}
        }
    }

    fn notice(&mut self, notice: Notice) {
        self.reports.send(Report::Notice(notice));
    }
}
