//! The interface that the Messaging Layer ([`crate::rdm`]) and the plain verbs
//! ([`crate::direct`]) share: the calls of applications, their completions, and how a world
//! drives both.
//!
//! | module | what |
//! |---|---|
//! | `world` | what a call borrows, its peer, and why it may be refused |
//! | `request` | messages, receives, reads and writes, atomic operations |
//! | `completion` | operations that have ended |

pub(crate) mod completion;
pub(crate) mod request;
pub(crate) mod world;

use core::fmt::Debug;
use core::net::SocketAddr;

use srd_proto::{Delivery, Event, Instant, Status};

pub use self::completion::{Kind, OperationCompletion, Outcome};
pub use self::request::{
    Atomic, AtomicOp, Datatype, Family, Iov, Message, Order, Peek, Receive, Rma, RmaIov, Selector,
    Shared, Until,
};
pub use self::world::{Peer, Refused, World};
use crate::memory::Memory;

/// An endpoint above the transport. Calls that a layer does not support are refused as
/// [`Refused::Invalid`] or have no effect, as the methods with a body do here.
pub trait Layer: Debug + Send + 'static {
    /// Judges a datagram, for [`srd_proto::Endpoint::handle_packet_with`].
    fn admit(&mut self, now: Instant, delivery: &Delivery<'_>, memory: &mut dyn Memory) -> Status;

    /// Takes note of something that happened in the transport.
    fn event(&mut self, now: Instant, event: &Event);

    /// Sends on what waits, as far as the transport takes it. Returns whether it took anything.
    fn pump(&mut self, world: &mut World<'_>) -> bool;

    /// The oldest operation that has ended.
    fn poll(&mut self) -> Option<OperationCompletion>;

    /// Whether nothing is under way that a peer waits for.
    fn is_quiet(&self) -> bool;

    /// Whether [`Layer::pump`] has work that no event of the transport announces.
    fn has_work(&self) -> bool;

    /// Lets messages leave that wait for others to share their datagram.
    fn flush_coalesced(&mut self) {}

    /// Returns whether the last call queued nothing that should leave now, and resets it.
    fn take_deferred(&mut self) -> bool {
        false
    }

    /// Whether messages wait for others to share their datagram.
    fn is_coalescing(&self) -> bool {
        false
    }

    /// The peer at an address. `incarnation`: the run that is meant, zero for any.
    ///
    /// # Errors
    /// `Again` when there are too many peers, `Invalid` for an address that cannot be reached.
    fn add_peer(
        &mut self,
        world: &mut World<'_>,
        address: SocketAddr,
        incarnation: u64,
    ) -> Result<Peer, Refused>;

    /// The application has removed a peer.
    fn remove_peer(&mut self, _world: &mut World<'_>, _peer: Peer) {}

    /// Address of a peer, and its run; the run is zero if it is unknown.
    fn address_of(&self, peer: Peer) -> Option<(SocketAddr, u64)>;

    /// Sends a message.
    ///
    /// # Errors
    /// What the layer refuses.
    fn send(&mut self, world: &mut World<'_>, message: Message<'_>) -> Result<(), Refused>;

    /// Posts a receive.
    ///
    /// # Errors
    /// What the layer refuses.
    fn recv(&mut self, world: &mut World<'_>, receive: Receive<'_>) -> Result<(), Refused>;

    /// Reads or writes a peer's memory.
    ///
    /// # Errors
    /// What the layer refuses.
    fn rma(&mut self, world: &mut World<'_>, rma: Rma<'_>) -> Result<(), Refused>;

    /// Lets peers use memory.
    ///
    /// # Errors
    /// What the layer refuses.
    fn share(&mut self, shared: Shared) -> Result<(), Refused>;

    /// Takes it back: transfers that use it fail.
    fn unshare(&mut self, rkey: u64);

    /// Bytes that an injected message may have.
    fn inject_bytes_max(&self) -> u64;

    /// Whether it takes writes of bytes that it copies ([`Until::Injected`]).
    fn copies_writes(&self) -> bool {
        false
    }

    /// Bytes that an atomic operation may name; with comparands, if `compare`.
    fn atomic_bytes_max(&self, _compare: bool) -> u64 {
        0
    }

    /// Computes in a peer's memory.
    ///
    /// # Errors
    /// What the layer refuses.
    fn atomic(&mut self, _world: &mut World<'_>, _atomic: Atomic<'_>) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }

    /// Looks for an unexpected message.
    ///
    /// # Errors
    /// What the layer refuses.
    fn peek(
        &mut self,
        _tagged: bool,
        _want: Selector,
        _what: Peek,
        _ctx: u64,
    ) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }

    /// Receives the message that was claimed with the same context.
    ///
    /// # Errors
    /// What the layer refuses.
    fn recv_claimed(
        &mut self,
        _world: &mut World<'_>,
        _receive: Receive<'_>,
    ) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }

    /// Throws the message away that was claimed with the context.
    ///
    /// # Errors
    /// What the layer refuses.
    fn discard_claimed(&mut self, _context: u64, _tagged: bool) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }

    /// Cancels the receive with this context: whether there was one. `None`: it cannot.
    fn cancel(&mut self, _context: u64) -> Option<bool> {
        None
    }

    /// Sets the order between operations that are posted later.
    fn set_order(&mut self, _order: Order) {}
}
