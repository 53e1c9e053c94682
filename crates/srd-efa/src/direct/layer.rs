//! Implementation of [`Layer`] for the plain verbs: each call goes to the method of [`Direct`] with
//! the same name.

use core::net::SocketAddr;

use srd_proto::{Delivery, Event, Instant, Status};

use crate::direct::state::Direct;
use crate::layer::{
    Layer, Message, OperationCompletion, Peer, Receive, Refused, Rma, Shared, World,
};
use crate::memory::Memory;

impl Layer for Direct {
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

    fn awaits_peers(&self) -> bool {
        self.awaits_peers()
    }

    fn probe(&mut self, world: &mut World<'_>) {
        self.probe(world);
    }

    fn set_unread(&mut self, unread: usize) {
        self.set_unread(unread);
    }

    fn is_quiet(&self) -> bool {
        self.is_quiet()
    }

    fn has_work(&self) -> bool {
        !self.is_quiet()
    }

    fn add_peer(
        &mut self,
        world: &mut World<'_>,
        address: SocketAddr,
        _incarnation: u64,
    ) -> Result<Peer, Refused> {
        self.add_peer(world, address)
    }

    fn address_of(&self, peer: Peer) -> Option<(SocketAddr, u64)> {
        self.address_of(peer).map(|address| (address, 0))
    }

    fn send(&mut self, world: &mut World<'_>, message: Message<'_>) -> Result<(), Refused> {
        self.send(world, message)
    }

    fn recv(&mut self, _world: &mut World<'_>, receive: Receive<'_>) -> Result<(), Refused> {
        self.recv(&receive)
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
        self.message_bytes_max()
    }
}
