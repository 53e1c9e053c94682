//! Peers of a worker that are hosts of clouds, and the packets of instances that these hosts send.

use std::net::SocketAddr;
use std::sync::Arc;

use srd_card::{Arrivals, Arrived, PeerSlot, Trailer};
use srd_proto::{Event, Instant, PeerId};

/// Receiver of the packets and events of the peers that are hosts of clouds. A card of instances
/// implements this trait. The worker calls the functions on its own thread.
pub trait Hosts: Arrivals {
    /// Whether peers may be hosts of clouds. If false, the worker makes no other call.
    const MAY_EXIST: bool;

    /// Sets the arrival time of the packets that the worker delivers next.
    fn at(&mut self, now: Instant);

    /// Adds a host in this slot of the card. A host that was removed before and has the same name
    /// continues with its counters. `address`: the address of the host, if it is known.
    fn add(&mut self, slot: PeerSlot, name: &Arc<str>, address: Option<SocketAddr>);

    /// Ends the use of a slot. Its host may be added again in another slot.
    fn remove(&mut self, now: Instant, slot: PeerSlot);

    /// Removes a host for good.
    fn forget(&mut self, name: &str);

    /// Processes an event of the context with the peer in this slot.
    fn event(&mut self, now: Instant, slot: PeerSlot, event: &Event);
}

/// The empty set of hosts, for a worker without instances.
#[derive(Debug)]
pub(crate) struct NoHosts;

impl Arrivals for NoHosts {
    fn arrived(&mut self, _: Arrived, _: Trailer, _: &[u8]) {}
}

impl Hosts for NoHosts {
    const MAY_EXIST: bool = false;

    fn at(&mut self, _: Instant) {}

    fn add(&mut self, _: PeerSlot, _: &Arc<str>, _: Option<SocketAddr>) {}

    fn remove(&mut self, _: Instant, _: PeerSlot) {}

    fn forget(&mut self, _: &str) {}

    fn event(&mut self, _: Instant, _: PeerSlot, _: &Event) {}
}

/// Returns the context to which an event belongs; `None` if a card of instances does not need the
/// event.
pub(crate) fn context_of(event: &Event) -> Option<PeerId> {
    match event {
        Event::PeerUp { peer }
        | Event::PeerDown { peer, .. }
        | Event::Diagnosis { peer, .. }
        | Event::PathMtu { peer, .. } => Some(*peer),
        _ => None,
    }
}
