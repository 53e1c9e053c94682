//! What an endpoint's operations are asked of: the Messaging Layer, or the verbs themselves.
//!
//! What the verbs do not do is refused; endpoints on them have no calls for it.

use std::net::SocketAddr;

use srd_efa::Memory;
use srd_efa::direct::Direct;
use srd_efa::layer::{
    Atomic, Done, Message, Order, Peek, Peer, Receive, Refused, Rma, Shared, Want, World,
};
use srd_efa::rdm::Rdm;
use srd_proto::{Delivery, Event, Instant, Status};

/// What moves an endpoint's data.
#[derive(Debug)]
pub enum Layer {
    /// The Messaging Layer.
    Messaging(Box<Rdm>),
    /// The verbs.
    Direct(Box<Direct>),
}

use Layer::{Direct as Verbs, Messaging};

impl Layer {
    /// The peer at an address.
    ///
    /// # Errors
    /// What the layer refuses.
    pub fn add_peer(
        &mut self,
        world: &mut World<'_>,
        place: SocketAddr,
        incarnation: u64,
    ) -> Result<Peer, Refused> {
        match self {
            Messaging(rdm) => rdm.add_peer(world, place, incarnation),
            Verbs(direct) => direct.add_peer(world, place),
        }
    }

    /// The application has removed a peer.
    pub fn remove_peer(&mut self, world: &mut World<'_>, peer: Peer) {
        match self {
            Messaging(rdm) => rdm.remove_peer(world, peer),
            Verbs(_) => {}
        }
    }

    /// Where a peer is, and which run there; zero where that is not known.
    #[must_use]
    pub fn address_of(&self, peer: Peer) -> Option<(SocketAddr, u64)> {
        match self {
            Messaging(rdm) => rdm.address_of(peer),
            Verbs(direct) => direct.address_of(peer).map(|place| (place, 0)),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// What the layer refuses.
    pub fn send(&mut self, world: &mut World<'_>, message: Message<'_>) -> Result<(), Refused> {
        match self {
            Messaging(rdm) => rdm.send(world, message),
            Verbs(direct) => direct.send(world, message),
        }
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// What the layer refuses.
    pub fn recv(&mut self, world: &mut World<'_>, receive: Receive<'_>) -> Result<(), Refused> {
        match self {
            Messaging(rdm) => rdm.recv(world, receive),
            Verbs(direct) => direct.recv(&receive),
        }
    }

    /// Looks for a message.
    ///
    /// # Errors
    /// What the layer refuses.
    pub fn peek(
        &mut self,
        world: &mut World<'_>,
        tagged: bool,
        want: Want,
        what: Peek,
        context: u64,
    ) -> Result<(), Refused> {
        match self {
            Messaging(rdm) => rdm.peek(world, tagged, want, what, context),
            Verbs(_) => Err(Refused::Invalid),
        }
    }

    /// Receives the message that was claimed with the same context.
    ///
    /// # Errors
    /// What the layer refuses.
    pub fn recv_claimed(
        &mut self,
        world: &mut World<'_>,
        receive: Receive<'_>,
    ) -> Result<(), Refused> {
        match self {
            Messaging(rdm) => rdm.recv_claimed(world, receive),
            Verbs(_) => Err(Refused::Invalid),
        }
    }

    /// Throws it away.
    ///
    /// # Errors
    /// What the layer refuses.
    pub fn discard_claimed(
        &mut self,
        world: &mut World<'_>,
        context: u64,
        tagged: bool,
    ) -> Result<(), Refused> {
        match self {
            Messaging(rdm) => rdm.discard_claimed(world, context, tagged),
            Verbs(_) => Err(Refused::Invalid),
        }
    }

    /// Reads or writes a peer's memory.
    ///
    /// # Errors
    /// What the layer refuses.
    pub fn rma(&mut self, world: &mut World<'_>, rma: Rma<'_>) -> Result<(), Refused> {
        match self {
            Messaging(rdm) => rdm.rma(world, rma),
            Verbs(direct) => direct.rma(world, rma),
        }
    }

    /// Whether reads and writes may be asked for with bytes that the layer copies.
    #[must_use]
    pub fn copies_writes(&self) -> bool {
        matches!(self, Messaging(_))
    }

    /// Computes in a peer's memory.
    ///
    /// # Errors
    /// What the layer refuses.
    pub fn atomic(&mut self, world: &mut World<'_>, atomic: Atomic<'_>) -> Result<(), Refused> {
        match self {
            Messaging(rdm) => rdm.atomic(world, atomic),
            Verbs(_) => Err(Refused::Invalid),
        }
    }

    /// Cancels the receive with this context; whether there was one. `None`: it cannot.
    pub fn cancel(&mut self, context: u64) -> Option<bool> {
        match self {
            Messaging(rdm) => Some(rdm.cancel(context)),
            Verbs(_) => None,
        }
    }

    /// Lets peers use memory.
    ///
    /// # Errors
    /// What the layer refuses.
    pub fn share(&mut self, shared: Shared) -> Result<(), Refused> {
        match self {
            Messaging(rdm) => rdm.share(shared),
            Verbs(direct) => direct.share(shared),
        }
    }

    /// Takes it back.
    pub fn unshare(&mut self, key: u64) {
        match self {
            Messaging(rdm) => rdm.unshare(key),
            Verbs(direct) => direct.unshare(key),
        }
    }

    /// Which operations do not overtake which.
    pub fn set_order(&mut self, order: Order) {
        if let Messaging(rdm) = self {
            rdm.set_order(order);
        }
    }

    /// Bytes that an injected message may have.
    #[must_use]
    pub fn inject_bytes_max(&self) -> u64 {
        match self {
            Messaging(rdm) => rdm.inject_bytes_max(),
            Verbs(direct) => direct.message_bytes_max(),
        }
    }

    /// Bytes that an atomic operation may name.
    #[must_use]
    pub fn atomic_bytes_max(&self, compare: bool) -> u64 {
        match self {
            Messaging(rdm) => rdm.atomic_bytes_max(compare),
            Verbs(_) => 0,
        }
    }
}

impl srd_host::Layer for Layer {
    fn judge(&mut self, now: Instant, delivery: &Delivery<'_>, memory: &mut dyn Memory) -> Status {
        match self {
            Messaging(rdm) => rdm.judge(now, delivery, memory),
            Verbs(direct) => direct.judge(now, delivery, memory),
        }
    }

    fn event(&mut self, now: Instant, event: &Event) {
        match self {
            Messaging(rdm) => rdm.event(now, event),
            Verbs(direct) => direct.event(now, event),
        }
    }

    fn pump(&mut self, world: &mut World<'_>) -> bool {
        match self {
            Messaging(rdm) => rdm.pump(world),
            Verbs(direct) => direct.pump(world),
        }
    }

    fn poll(&mut self) -> Option<Done> {
        match self {
            Messaging(rdm) => rdm.poll(),
            Verbs(direct) => direct.poll(),
        }
    }

    fn is_quiet(&self) -> bool {
        match self {
            Messaging(rdm) => rdm.is_quiet(),
            Verbs(direct) => direct.is_quiet(),
        }
    }

    fn has_work(&self) -> bool {
        match self {
            Messaging(rdm) => rdm.has_work(),
            Verbs(direct) => !direct.is_quiet(),
        }
    }

    fn release_held(&mut self) {
        if let Messaging(rdm) = self {
            rdm.release_held();
        }
    }

    fn take_lazy(&mut self) -> bool {
        match self {
            Messaging(rdm) => rdm.take_lazy(),
            Verbs(_) => false,
        }
    }

    fn is_holding(&self) -> bool {
        match self {
            Messaging(rdm) => rdm.is_holding(),
            Verbs(_) => false,
        }
    }
}
