//! The interface that the Messaging Layer ([`crate::rdm`]) and the plain verbs ([`crate::direct`])
//! share: the calls of applications, their completions, and the arguments with which a program
//! drives both.
//!
//! | module | content |
//! |---|---|
//! | `world` | arguments of calls, peers, and reasons to refuse a call |
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

/// An endpoint above the transport. If a layer does not support a call, it refuses the call as
/// [`Refused::Invalid`], or the call has no effect. The default methods of this trait do so.
pub trait Layer: Debug + Send + 'static {
    /// Admits or refuses a datagram, for [`srd_proto::Endpoint::handle_packet_with`].
    fn admit(&mut self, now: Instant, delivery: &Delivery<'_>, memory: &mut dyn Memory) -> Status;

    /// Handles an event of the transport.
    fn event(&mut self, now: Instant, event: &Event);

    /// Sends waiting datagrams, as many as the transport accepts. Returns whether the transport
    /// accepted any.
    fn pump(&mut self, world: &mut World<'_>) -> bool;

    /// Takes the oldest operation that has ended.
    fn poll(&mut self) -> Option<OperationCompletion>;

    /// Whether [`Layer::poll`] may return an operation. The default is true.
    fn may_have_ended(&self) -> bool {
        true
    }

    /// Whether operations wait for peers. If so, the caller calls [`Layer::probe`] at intervals.
    fn awaits_peers(&self) -> bool {
        false
    }

    /// Sends a probe to each peer for which operations have waited since the last call, so that the
    /// transport notices the end of a peer that has acknowledged everything.
    fn probe(&mut self, _world: &mut World<'_>) {}

    /// Sets the number of polled completions that the application has not read although their space
    /// is exceeded. They count towards the layer's limit of operations that have ended, above which
    /// it accepts no operation.
    fn set_unread(&mut self, _unread: usize) {}

    /// Whether no operation and no answer to a peer is in progress.
    fn is_quiet(&self) -> bool;

    /// Whether [`Layer::pump`] has work that no event of the transport announces.
    fn has_work(&self) -> bool;

    /// Whether it is certain that a call of [`Layer::pump`] would do nothing now.
    fn is_idle(&self) -> bool {
        false
    }

    /// Sends messages that wait for further messages to share their datagram.
    fn flush_coalesced(&mut self) {}

    /// Whether nothing that the application's last call queued has to be sent at once. The next
    /// call of this function returns false, unless another call has queued something in between.
    fn take_deferred(&mut self) -> bool {
        false
    }

    /// Whether the application's last call has passed everything that it queued to the transport,
    /// so that the layer has no other work because of it. The next call of this function returns
    /// false, unless another call was made in between.
    fn take_at_once(&mut self) -> bool {
        false
    }

    /// Whether messages wait for further messages to share their datagram.
    fn is_coalescing(&self) -> bool {
        false
    }

    /// Returns the peer at an address. `incarnation`: the requested run, zero for any run.
    ///
    /// # Errors
    /// `Again` if there are too many peers; `Invalid` for an address that cannot be reached.
    fn add_peer(
        &mut self,
        world: &mut World<'_>,
        address: SocketAddr,
        incarnation: u64,
    ) -> Result<Peer, Refused>;

    /// Removes a peer that the application has added.
    fn remove_peer(&mut self, _world: &mut World<'_>, _peer: Peer) {}

    /// Returns the address of a peer, and its run; the run is zero if it is unknown.
    fn address_of(&self, peer: Peer) -> Option<(SocketAddr, u64)>;

    /// Sends a message.
    ///
    /// # Errors
    /// [`Refused`], if the layer does not accept the call.
    fn send(&mut self, world: &mut World<'_>, message: Message<'_>) -> Result<(), Refused>;

    /// Posts a receive.
    ///
    /// # Errors
    /// [`Refused`], if the layer does not accept the call.
    fn recv(&mut self, world: &mut World<'_>, receive: Receive<'_>) -> Result<(), Refused>;

    /// Reads or writes a peer's memory.
    ///
    /// # Errors
    /// [`Refused`], if the layer does not accept the call.
    fn rma(&mut self, world: &mut World<'_>, rma: Rma<'_>) -> Result<(), Refused>;

    /// Registers memory for peers.
    ///
    /// # Errors
    /// [`Refused`], if the layer does not accept the call.
    fn share(&mut self, shared: Shared) -> Result<(), Refused>;

    /// Deregisters memory: transfers that use this memory fail.
    fn unshare(&mut self, rkey: u64);

    /// Returns the largest number of bytes of an injected message.
    fn inject_bytes_max(&self) -> u64;

    /// Whether the layer supports writes whose bytes it copies ([`Until::Injected`]).
    fn copies_writes(&self) -> bool {
        false
    }

    /// Returns the largest number of bytes of an atomic operation; with `compare`, of an operation
    /// that has comparands.
    fn atomic_bytes_max(&self, _compare: bool) -> u64 {
        0
    }

    /// Executes an atomic operation in a peer's memory.
    ///
    /// # Errors
    /// [`Refused`], if the layer does not accept the call.
    fn atomic(&mut self, _world: &mut World<'_>, _atomic: Atomic<'_>) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }

    /// Searches for an unexpected message, and reports, claims or discards it. The result is a
    /// completion with the call's context.
    ///
    /// # Errors
    /// [`Refused`], if the layer does not accept the call.
    fn peek(
        &mut self,
        _tagged: bool,
        _want: Selector,
        _what: Peek,
        _ctx: u64,
    ) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }

    /// Receives the message that an earlier [`Layer::peek`] with the same context has claimed.
    ///
    /// # Errors
    /// [`Refused`], if the layer does not accept the call.
    fn recv_claimed(
        &mut self,
        _world: &mut World<'_>,
        _receive: Receive<'_>,
    ) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }

    /// Discards the message that an earlier [`Layer::peek`] with this context has claimed.
    ///
    /// # Errors
    /// [`Refused`], if the layer does not accept the call.
    fn discard_claimed(&mut self, _context: u64, _tagged: bool) -> Result<(), Refused> {
        Err(Refused::Invalid)
    }

    /// Cancels the receive with this context. Returns whether there was such a receive; `None` if
    /// the layer cannot cancel receives.
    fn cancel(&mut self, _context: u64) -> Option<bool> {
        None
    }

    /// Sets the order between operations that are posted from now on.
    fn set_order(&mut self, _order: Order) {}
}
