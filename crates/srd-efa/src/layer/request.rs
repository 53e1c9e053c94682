//! Requests of callers to a layer: messages, receives, reads and writes, atomic operations.

use crate::layer::world::Peer;
use crate::mr::Access;

/// A piece of the application's own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Iov {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
}

/// A piece of a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RmaIov {
    /// Address of the first byte, as the peer registered it.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// The registration's key.
    pub rkey: u64,
}

/// Completion level of an operation: the point at which it completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Its buffers may be used again as soon as the call returns (`FI_INJECT`); the bytes are
    /// copied, at most [`crate::rdm::Rdm::inject_bytes_max`]. Its success is reported at once;
    /// should it fail later, that is reported as a second completion of the same context.
    Injected,
    /// The peer's transport has it (`FI_TRANSMIT_COMPLETE`).
    Transmitted,
    /// The data is in the peer's memory, in the buffer that its application posted
    /// (`FI_DELIVERY_COMPLETE`).
    Delivered,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The peer.
    pub to: Peer,
    /// Its tag; `None` for a message without one, which only receives without one match.
    pub tag: Option<u64>,
    /// Its bytes.
    pub iov: &'a [Iov],
    /// Data for the receiver's completion.
    pub data: Option<u64>,
    /// Handed back in the completion.
    pub context: u64,
    /// Completion level.
    pub until: Until,
    /// Whether success is reported (`FI_COMPLETION`); failure always is.
    pub signaled: bool,
}

/// Room for a message, or for many.
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// Whether it is for messages with tags.
    pub tagged: bool,
    /// Messages that the receive matches. Without tags: `ignore` is all ones.
    pub want: Selector,
    /// Buffers for the message.
    pub iov: &'a [Iov],
    /// Handed back in completions.
    pub context: u64,
    /// `FI_MULTI_RECV`: messages go one behind the other, until less than this is left.
    pub multi: Option<u64>,
    /// Whether success is reported; failure always is.
    pub signaled: bool,
}

/// Action on an unexpected message that is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peek {
    /// Only look (`FI_PEEK`).
    Look,
    /// Keep it for a receive that names the same context (`FI_PEEK | FI_CLAIM`).
    Claim,
    /// Throw it away (`FI_PEEK | FI_DISCARD`).
    Discard,
}

/// A read or write of a peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Rma<'a> {
    /// The peer.
    pub to: Peer,
    /// Read it; else write it.
    pub read: bool,
    /// Our end.
    pub local: &'a [Iov],
    /// The peer's end: as many bytes.
    pub remote: &'a [RmaIov],
    /// Data for a completion at the peer, for writes.
    pub data: Option<u64>,
    /// Handed back in the completion.
    pub context: u64,
    /// Completion level.
    pub until: Until,
    /// Whether success is reported; failure always is.
    pub signaled: bool,
}

/// Type of the elements of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the names of libfabric's `enum fi_datatype`
pub enum Datatype {
    Int8,
    Uint8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Float,
    Double,
    FloatComplex,
    DoubleComplex,
    Int128,
    Uint128,
}

/// Operation on each element `d` with operand `s` (and comparand `c`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the names of libfabric's `enum fi_op`
pub enum AtomicOp {
    Min,
    Max,
    Sum,
    Prod,
    LogicalOr,
    LogicalAnd,
    BitOr,
    BitAnd,
    LogicalXor,
    BitXor,
    /// Changes nothing: only a fetch makes sense.
    Read,
    Write,
    /// `if c == d { d = s }`
    Cswap,
    /// `if c != d { d = s }`
    CswapNe,
    /// `if c <= d { d = s }`
    CswapLe,
    /// `if c < d { d = s }`
    CswapLt,
    /// `if c >= d { d = s }`
    CswapGe,
    /// `if c > d { d = s }`
    CswapGt,
    /// `d = (s & c) | (d & !c)`
    Mswap,
}

/// An atomic operation on a peer's memory. What it names fits one packet.
#[derive(Clone, Copy, Debug)]
pub struct Atomic<'a> {
    /// The peer.
    pub to: Peer,
    /// Operation on each element.
    pub op: AtomicOp,
    /// To elements of this type.
    pub datatype: Datatype,
    /// Operands; none for a read.
    pub operand: &'a [Iov],
    /// Comparands, for swaps under conditions.
    pub compare: &'a [Iov],
    /// Buffers for the former elements; empty if they are not fetched.
    pub result: &'a [Iov],
    /// The peer's elements.
    pub remote: &'a [RmaIov],
    /// Handed back in the completion.
    pub context: u64,
    /// Completion level, if the operation fetches nothing.
    pub until: Until,
    /// Whether success is reported; failure always is.
    pub signaled: bool,
}

/// Messages that a receive matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selector {
    /// The tag.
    pub tag: u64,
    /// Bits of it that do not matter. Messages without tags: all.
    pub ignore: u64,
    /// The peer that it must come from (`FI_DIRECTED_RECV`), as the caller numbers peers;
    /// `None`: from anyone.
    pub source: Option<u32>,
}

/// A piece of memory that peers may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// Number of the region in [`crate::Memory`].
    pub region: u64,
    /// The address of its first byte, as peers name it.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// Its key: unique here, and the caller's choice.
    pub rkey: u64,
    /// Access rights of peers.
    pub access: Access,
}

/// Operations, as far as order goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Messages.
    Message = 0,
    /// Reads of a peer's memory.
    Read = 1,
    /// Writes to it.
    Write = 2,
    /// Atomic operations, with a fetch or without.
    Atomic = 3,
}

/// Number of families.
pub(crate) const FAMILIES: usize = 4;

/// Order between operations to one peer: operations that must not overtake earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// By the later one's family: a bit for each family that it waits for.
    waits: [u8; FAMILIES],
}

impl Order {
    /// Adds the rule that operations of family `later` do not overtake those of family `earlier`.
    /// A rule about earlier messages has no effect, because a message may not end before its
    /// receiver posts a receive. Messages and atomic operations need no rule between each other.
    #[must_use]
    pub fn keeping(mut self, later: Family, earlier: Family) -> Self {
        let numbered = |family| matches!(family, Family::Message | Family::Atomic);
        if earlier != Family::Message && !(numbered(later) && numbered(earlier)) {
            self.waits[later as usize] |= 1 << earlier as u8;
        }
        self
    }

    /// Whether an operation has to wait while so many of each family have not ended.
    pub(crate) fn holds(self, later: Family, unfinished: &[u32; FAMILIES]) -> bool {
        let waits = self.waits[later as usize];
        (0..).zip(unfinished).any(|(family, count)| waits & 1 << family != 0 && *count > 0)
    }
}
