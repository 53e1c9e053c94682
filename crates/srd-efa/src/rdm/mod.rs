//! The Messaging Layer, pure: reliable datagram endpoints (`FI_EP_RDM`) over SRD.
//!
//! [`Matcher`] brings receives and messages together: one for tagged messages, another for those
//! without a tag. It knows nothing of packets or buffers, so that whoever moves bytes can look a
//! message up while it still lies in the packet that brought it, and copy it once.

mod api;
mod chain;
mod matching;
#[cfg(test)]
mod matching_tests;

use core::net::SocketAddr;

use srd_proto::{Delivery, Endpoint, Event, Instant, Status};

pub use api::{
    Atomic, AtomicOp, Datatype, Done, Kind, Message, Outcome, Peek, Peer, Piece, Receive, Refused,
    RemotePiece, Rma, Until, World,
};
pub use matching::{Limits, Matcher, MessageKey, Offer, ReceiveKey, Want};

use crate::memory::Memory;
use crate::mr::Access;

/// Every limit of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Operations that may be under way.
    pub operations_max: u32,
    /// Receives that may be posted, of each sort.
    pub receives_max: u32,
    /// Tell of peers' reads and writes without data, too ([`Kind::RemoteRead`]).
    pub tell_remote: bool,
    /// Secret that tables are keyed with.
    pub seed: u64,
}

/// A piece of memory that peers may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// What [`Memory`] knows it by.
    pub region: u64,
    /// The address of its first byte, as peers name it.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// Its key: unique here, and the caller's choice.
    pub rkey: u64,
    /// What peers may do.
    pub access: Access,
}

/// A reliable datagram endpoint.
#[derive(Debug)]
pub struct Rdm {}

#[allow(unused_variables, missing_docs, clippy::missing_errors_doc)]
impl Rdm {
    /// An endpoint over the transport's. `own` is our address, and `incarnation` the run of this
    /// endpoint as addresses name it.
    pub fn new(config: Config, endpoint: &mut Endpoint, own: SocketAddr, incarnation: u64) -> Self {
        unimplemented!()
    }
    /// The peer at an address; our own address is the endpoint itself. `incarnation`: the run that
    /// is meant, zero for whoever is there. Added as often as it must be removed.
    pub fn add_peer(
        &mut self,
        world: &mut World<'_>,
        address: SocketAddr,
        incarnation: u64,
    ) -> Result<Peer, Refused> {
        unimplemented!()
    }
    /// What is under way to the peer ends as `Removed`. Who only wrote to us stays known.
    pub fn remove_peer(&mut self, world: &mut World<'_>, peer: Peer) {
        unimplemented!()
    }
    /// Where a peer is, and its run as far as it is known.
    pub fn address_of(&self, peer: Peer) -> Option<(SocketAddr, u64)> {
        unimplemented!()
    }
    /// Bytes that an injected message may have.
    pub fn inject_bytes_max(&self) -> u64 {
        unimplemented!()
    }
    /// Bytes that an atomic operation may name.
    pub fn atomic_bytes_max(&self, compare: bool) -> u64 {
        unimplemented!()
    }
    pub fn send(&mut self, world: &mut World<'_>, message: Message<'_>) -> Result<(), Refused> {
        unimplemented!()
    }
    pub fn recv(&mut self, world: &mut World<'_>, receive: Receive<'_>) -> Result<(), Refused> {
        unimplemented!()
    }
    /// A receive for the message that was claimed under the context; it completes as any other.
    pub fn recv_claimed(
        &mut self,
        world: &mut World<'_>,
        receive: Receive<'_>,
    ) -> Result<(), Refused> {
        unimplemented!()
    }
    /// Throws the message away that was claimed under the context (`FI_CLAIM | FI_DISCARD`).
    pub fn discard_claimed(
        &mut self,
        world: &mut World<'_>,
        context: u64,
        tagged: bool,
    ) -> Result<(), Refused> {
        unimplemented!()
    }
    /// Looks for an unexpected message. What was found, or [`Outcome::NoMessage`], is told as a
    /// receive.
    pub fn peek(
        &mut self,
        world: &mut World<'_>,
        tagged: bool,
        want: Want,
        what: Peek,
        context: u64,
    ) -> Result<(), Refused> {
        unimplemented!()
    }
    /// Cancels a receive; false if none of this context waits.
    pub fn cancel(&mut self, context: u64) -> bool {
        unimplemented!()
    }
    pub fn rma(&mut self, world: &mut World<'_>, rma: Rma<'_>) -> Result<(), Refused> {
        unimplemented!()
    }
    pub fn atomic(&mut self, world: &mut World<'_>, atomic: Atomic<'_>) -> Result<(), Refused> {
        unimplemented!()
    }
    /// Lets peers use memory. `Invalid` if the key is taken.
    pub fn share(&mut self, shared: Shared) -> Result<(), Refused> {
        unimplemented!()
    }
    /// Takes it back: transfers that use it fail.
    pub fn unshare(&mut self, rkey: u64) {
        unimplemented!()
    }
    /// Judges a datagram, for [`srd_proto::Endpoint::handle_packet_with`].
    pub fn judge(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        memory: &mut dyn Memory,
    ) -> Status {
        unimplemented!()
    }
    /// Takes note of something that happened in the transport.
    pub fn event(&mut self, now: Instant, event: &Event) {
        unimplemented!()
    }
    /// Sends on what waits, as far as the transport takes it. Returns whether it took anything.
    pub fn pump(&mut self, world: &mut World<'_>) -> bool {
        unimplemented!()
    }
    /// The oldest end of something.
    pub fn poll(&mut self) -> Option<Done> {
        unimplemented!()
    }
    /// Whether nothing is under way that a peer waits for: what was sent has been acknowledged, and
    /// no answer is owed.
    pub fn is_quiet(&self) -> bool {
        unimplemented!()
    }
}
