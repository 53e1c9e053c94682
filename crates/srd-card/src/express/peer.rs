//! The state that the stage keeps for each peer.

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

/// How packets reach a peer now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// TCP by SRD.
    Express {
        /// Whether UDP rides as well.
        udp: bool,
        /// Whether tunnels without ports do.
        tunnels: bool,
    },
    /// Plainly: one of the two sides has SRD off.
    Off,
    /// Plainly, until the peer has made its offer.
    Waiting,
}

/// A super-packet of which some packets have gone plainly, and the rest waits for room.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) frame: Vec<u8>,
    /// Where things are in it, and how it is cut.
    pub(super) layout: Layout,
    /// The path of its packets.
    pub(super) path: Entropy,
    /// The trailer of its packets, if it is of a cloud.
    pub(super) trailer: Option<Trailer>,
    /// The packet that goes next.
    pub(super) next: usize,
}

/// A peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) offer: Option<Offer>,
    /// Our last offer, unless it was lost.
    pub(super) offered: Option<Carried>,
    /// An offer of ours is on its way.
    pub(super) offering: bool,
    /// When to offer (again), if we know no answer or have another offer to make.
    pub(super) offer_at: Instant,
    /// Changes when frames on their way may be lost: flows take new numbers then. No two peers
    /// have the same one, so that no peer inherits the numbers of one that is gone.
    pub(super) generation: u64,
    /// Bytes by which datagrams must be smaller than configured, if the fabric passes less.
    pub(super) bytes_lost: usize,
    pub(super) scheduler: Scheduler,
    /// The frame of which some packets have gone plainly.
    pub(super) cut: Option<Cut>,
    /// One, and one more for each plain frame of a cloud that found its queue empty.
    pub(super) drained: u64,
    /// Whether it is in the list of peers with frames in their queues.
    pub(super) queued: bool,
    /// The entry of flows that find no room in the table.
    pub(super) overflow: Option<u32>,
    pub(super) traffic: Traffic,
    /// The inner source address of the packet that was refused last.
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

    /// How packets reach it, by its offer and ours. // X1
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
