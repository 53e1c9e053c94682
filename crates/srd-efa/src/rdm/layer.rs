//! Implementation of [`Layer`] for the Messaging Layer: each call goes to the method of [`Rdm`]
//! with the same name.

use core::net::SocketAddr;

use srd_proto::{Delivery, Event, Instant, Status};

use crate::layer::{
    Atomic, Layer, Message, OperationCompletion, Order, Peek, Peer, Receive, Refused, Rma,
    Selector, Shared, World,
};
use crate::memory::Memory;
use crate::rdm::state::Rdm;

impl Layer for Rdm {
    fn admit(&mut self, now: Instant, delivery: &Delivery<'_>, memory: &mut dyn Memory) -> Status {
        self.admit(now, delivery, memory)
    }

    fn event(&mut self, now: Instant, event: &Event) {
        self.event(now, event);
    }

    fn pump(&mut self, world: &mut World<'_>) -> bool {
        self.pump(world)
    }

    fn poll(&mut self) -> Option<OperationCompletion> {
        self.poll()
    }

    fn may_have_ended(&self) -> bool {
        self.may_have_ended()
    }

    fn awaits_peers(&self) -> bool {
        self.awaits_peers()
    }

    fn probe(&mut self, _: &mut World<'_>) {
        self.probe();
    }

    fn set_unread(&mut self, unread: usize) {
        self.set_unread(unread);
    }

    fn is_quiet(&self) -> bool {
        self.is_quiet()
    }

    fn has_work(&self) -> bool {
        self.has_work()
    }

    fn is_idle(&self) -> bool {
        self.is_idle()
    }

    fn flush_coalesced(&mut self) {
        self.flush_coalesced();
    }

    fn take_deferred(&mut self) -> bool {
        self.take_deferred()
    }

    fn take_at_once(&mut self) -> bool {
        self.take_at_once()
    }

    fn is_coalescing(&self) -> bool {
        self.is_coalescing()
    }

    fn add_peer(
        &mut self,
        world: &mut World<'_>,
        address: SocketAddr,
        incarnation: u64,
    ) -> Result<Peer, Refused> {
        self.add_peer(world, address, incarnation)
    }

    fn remove_peer(&mut self, world: &mut World<'_>, peer: Peer) {
        self.remove_peer(world, peer);
    }

    fn address_of(&self, peer: Peer) -> Option<(SocketAddr, u64)> {
        self.address_of(peer)
    }

    fn send(&mut self, world: &mut World<'_>, message: Message<'_>) -> Result<(), Refused> {
        self.send(world, message)
    }

    fn recv(&mut self, world: &mut World<'_>, receive: Receive<'_>) -> Result<(), Refused> {
        self.recv(world, receive)
    }

    fn rma(&mut self, world: &mut World<'_>, rma: Rma<'_>) -> Result<(), Refused> {
        self.rma(world, rma)
    }

    fn share(&mut self, shared: Shared) -> Result<(), Refused> {
        self.share(shared)
    }

    fn unshare(&mut self, rkey: u64) {
        self.unshare(rkey);
    }

    fn inject_bytes_max(&self) -> u64 {
        self.inject_bytes_max()
    }

    fn copies_writes(&self) -> bool {
        true
    }

    fn atomic_bytes_max(&self, compare: bool) -> u64 {
        self.atomic_bytes_max(compare)
    }

    fn atomic(&mut self, world: &mut World<'_>, atomic: Atomic<'_>) -> Result<(), Refused> {
        self.atomic(world, atomic)
    }

    fn peek(
        &mut self,
        tagged: bool,
        want: Selector,
        what: Peek,
        context: u64,
    ) -> Result<(), Refused> {
        self.peek(tagged, want, what, context)
    }

    fn recv_claimed(&mut self, world: &mut World<'_>, receive: Receive<'_>) -> Result<(), Refused> {
        self.recv_claimed(world, receive)
    }

    fn discard_claimed(&mut self, context: u64, tagged: bool) -> Result<(), Refused> {
        self.discard_claimed(context, tagged)
    }

    fn cancel(&mut self, context: u64) -> Option<bool> {
        Some(self.cancel(context))
    }

    fn set_order(&mut self, order: Order) {
        self.set_order(order);
    }
}
