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
    /// SRD carries TCP, and the kinds of packets for which a field is true.
    Express {
        /// Whether SRD carries UDP.
        udp: bool,
        /// Whether SRD carries tunnels without ports.
        tunnels: bool,
    },
    /// All packets use plain encapsulation, because SRD is off at this card or at the peer.
    Off,
    /// All packets use plain encapsulation until the peer has made its offer.
    Waiting,
}

/// A frame whose packets are being sent outside of SRD, one by one: the next packets wait until the
/// transport has free space.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) frame: Vec<u8>,
    /// Offsets in the frame's packet, and the size of the segments into which it is divided.
    pub(super) layout: Layout,
    /// Path on which the packets are sent.
    pub(super) path: Entropy,
    /// Trailer that follows each packet; `None` if the frame is not of a cloud.
    pub(super) trailer: Option<Trailer>,
    /// Index of the packet that is sent next, from zero.
    pub(super) next: usize,
}

/// State of one peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) offer: Option<Offer>,
    /// Content of the last offer to the peer; `None` before the first offer, and after an offer was
    /// lost.
    pub(super) offered: Option<Carried>,
    /// Whether an offer to the peer is in flight.
    pub(super) offering: bool,
    /// Time of the next offer to the peer: an offer is due if the peer's own offer is missing, or
    /// if ours has changed. `Instant::FAR_FUTURE` if no offer is due.
    pub(super) offer_at: Instant,
    /// Number that changes when frames in flight may have been lost: then the flows to the peer
    /// take new flow numbers. No two peers have the same number, so that a new peer does not
    /// inherit the flow numbers of a removed peer.
    pub(super) generation: u64,
    /// Number of bytes by which datagrams to the peer must be smaller than configured, because the
    /// path MTU is smaller than configured; otherwise zero.
    pub(super) bytes_lost: usize,
    pub(super) scheduler: Scheduler,
    /// Bytes of the queue, with the records of frames, that count for the common limit of absent
    /// peers; zero if the peer has made an offer.
    pub(super) absent_bytes: usize,
    /// Frame of which some packets were sent outside of SRD and other packets wait; `None` if there
    /// is no such frame.
    pub(super) cut: Option<Cut>,
    /// Counter of cloud frames outside of SRD that found all queues of the peer empty. It begins at
    /// one.
    pub(super) drained: u64,
    /// Whether the peer is in the list of peers with frames in their queues.
    pub(super) queued: bool,
    /// Slot of the entry that all flows to the peer share if the full flow table has no entry for
    /// them; `None` if there was no slot for it.
    pub(super) overflow: Option<u32>,
    pub(super) traffic: Traffic,
    /// Inner source address of the peer's packet that was refused last, because the peer may not
    /// use this address.
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
            absent_bytes: 0,
            cut: None,
            drained: 1,
            queued: false,
            overflow,
            traffic: Traffic::default(),
            refused_from: None,
        }
    }

    /// Returns the encapsulation of packets to the peer, which follows from the peer's offer and
    /// from ours. // X1
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
