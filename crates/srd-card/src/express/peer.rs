//! State that the stage keeps for each peer.

use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::Instant;
use srd_proto::{Entropy, PeerId};

use crate::counters::Traffic;
use crate::meta::layout::Layout;
use crate::queue::scheduler::Scheduler;
use crate::rules::snapshot::Carried;
use crate::wire::cloud::Trailer;
use crate::wire::offer::Offer;

/// Encapsulation of packets to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// SRD for TCP.
    Express {
        /// Whether SRD carries UDP.
        udp: bool,
        /// Whether SRD carries tunnels without ports.
        tunnels: bool,
    },
    /// No SRD: it is off on one of the two sides.
    Off,
    /// No SRD until the peer has made its offer.
    Waiting,
}

/// A super-packet of which some packets were sent outside of SRD, and the others wait.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) frame: Vec<u8>,
    /// Offsets of the packet, and its segmentation.
    pub(super) layout: Layout,
    /// Path of the packets.
    pub(super) path: Entropy,
    /// Trailer of the packets, for a frame of a cloud.
    pub(super) trailer: Option<Trailer>,
    /// Number of the next packet.
    pub(super) next: usize,
}

/// A peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) offer: Option<Offer>,
    /// Our last offer, unless it was lost.
    pub(super) offered: Option<Carried>,
    /// Whether an offer of ours is in flight.
    pub(super) offering: bool,
    /// Time of the next offer, if the peer's answer is missing or our offer has changed.
    pub(super) offer_at: Instant,
    /// Number that changes when frames in flight may be lost: flows take new numbers then. Each
    /// peer has a different one, so that a new peer does not inherit the flow numbers of a removed
    /// one.
    pub(super) generation: u64,
    /// Bytes by which datagrams must be smaller than configured, if the network has a smaller MTU.
    pub(super) bytes_lost: usize,
    pub(super) scheduler: Scheduler,
    /// Frame of which some packets were sent outside of SRD.
    pub(super) cut: Option<Cut>,
    /// Counter that begins at one, and counts cloud frames outside of SRD that found the peer's
    /// queues empty.
    pub(super) drained: u64,
    /// Whether the peer is in the list of peers with frames in their queues.
    pub(super) queued: bool,
    /// Entry of flows without an entry of their own.
    pub(super) overflow: Option<u32>,
    pub(super) traffic: Traffic,
    /// Inner source address of the packet that was refused last.
    pub(super) refused_from: Option<IpAddr>,
}

impl Peer {
    pub(super) fn new(now: Instant, id: PeerId, generation: u64, overflow: Option<u32>) -> Self {
        Self {
            id,
            offer: None,
            offered: None,
            offering: false,
            offer_at: now,
            generation,
            bytes_lost: 0,
            scheduler: Scheduler::default(),
            cut: None,
            drained: 1,
            queued: false,
            overflow,
            traffic: Traffic::default(),
            refused_from: None,
        }
    }

    /// Returns the encapsulation of packets to the peer, by both offers. // X1
    pub(super) fn reach(&self, ours: Carried) -> Reach {
        match self.offer {
            _ if !ours.express => Reach::Off,
            None => Reach::Waiting,
            Some(offer) if offer.express => Reach::Express {
                udp: offer.udp && ours.udp,
                tunnels: offer.tunnels && ours.tunnels,
            },
            Some(_) => Reach::Off,
        }
    }
}
