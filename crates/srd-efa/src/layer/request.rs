//! Requests of callers to a layer: messages, receives, reads and writes, atomic operations.

use crate::layer::world::Peer;
use crate::mr::Access;

/// A piece of the application's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Iov {
    /// Address of the first byte.
    pub addr: u64,
    /// Length of the piece in bytes.
    pub length: u64,
}

/// A piece of a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RmaIov {
    /// Address of the first byte, as the peer registered it.
    pub addr: u64,
    /// Length of the piece in bytes.
    pub length: u64,
    /// Remote key of the registration.
    pub rkey: u64,
}

/// Completion level of an operation: the point at which the operation completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// The operation's buffers may be used again when the call returns (`FI_INJECT`): the bytes are
    /// copied, at most [`crate::rdm::Rdm::inject_bytes_max`]. Success is reported immediately. A
    /// later failure is reported as a second completion with the same context.
    Injected,
    /// The peer's transport has the data (`FI_TRANSMIT_COMPLETE`).
    Transmitted,
    /// The data is in the buffer that the peer's application posted (`FI_DELIVERY_COMPLETE`).
    Delivered,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Peer that receives the message.
    pub to: Peer,
    /// Tag; `None` for a message without a tag, which matches only receives without a tag.
    pub tag: Option<u64>,
    /// Pieces of the message.
    pub iov: &'a [Iov],
    /// Data for the receiver's completion; `None` for no data.
    pub data: Option<u64>,
    /// Context, which the completion returns.
    pub context: u64,
    /// Level at which the operation completes.
    pub until: Until,
    /// Whether success is reported (`FI_COMPLETION`). Failure is always reported.
    pub signaled: bool,
}

/// Buffers for a message, or for many messages.
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// Whether the receive is for messages with tags.
    pub tagged: bool,
    /// Messages that the receive matches. For messages without tags, `ignore` is all ones.
    pub want: Selector,
    /// Buffers for the message.
    pub iov: &'a [Iov],
    /// Context, which the completions return.
    pub context: u64,
    /// `FI_MULTI_RECV`: messages are placed one after the other into the buffers, until fewer than
    /// this number of bytes are free. `None`: the receive is for one message.
    pub multi: Option<u64>,
    /// Whether success is reported. Failure is always reported.
    pub signaled: bool,
}

/// Action on an unexpected message that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peek {
    /// Only report the message (`FI_PEEK`).
    Look,
    /// Reserve the message for a receive with the same context (`FI_PEEK | FI_CLAIM`).
    Claim,
    /// Discard the message (`FI_PEEK | FI_DISCARD`).
    Discard,
}

/// A read or write of a peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Rma<'a> {
    /// Peer whose memory is accessed.
    pub to: Peer,
    /// Whether the operation reads the peer's memory; if not, the operation writes.
    pub read: bool,
    /// Pieces of local memory.
    pub local: &'a [Iov],
    /// Pieces of the peer's memory. Their total number of bytes equals that of the local pieces.
    pub remote: &'a [RmaIov],
    /// Data for a completion at the peer; only for writes.
    pub data: Option<u64>,
    /// Context, which the completion returns.
    pub context: u64,
    /// Level at which the operation completes.
    pub until: Until,
    /// Whether success is reported. Failure is always reported.
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
    /// Changes nothing; only useful with a fetch.
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

/// An atomic operation on a peer's memory. Its operands must fit into one packet.
#[derive(Clone, Copy, Debug)]
pub struct Atomic<'a> {
    /// Peer whose memory is accessed.
    pub to: Peer,
    /// Operation on each element.
    pub op: AtomicOp,
    /// Type of the elements.
    pub datatype: Datatype,
    /// Operands; empty for a read.
    pub operand: &'a [Iov],
    /// Comparands of a conditional swap, or the masks of [`AtomicOp::Mswap`]; empty for other
    /// operations.
    pub compare: &'a [Iov],
    /// Buffers for the previous values of the elements; empty if they are not fetched.
    pub result: &'a [Iov],
    /// Elements in the peer's memory.
    pub remote: &'a [RmaIov],
    /// Context, which the completion returns.
    pub context: u64,
    /// Point at which the operation completes, if it does not fetch the previous values.
    pub until: Until,
    /// Whether success is reported. Failure is always reported.
    pub signaled: bool,
}

/// Messages that a receive matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selector {
    /// Tag of the messages, except for the bits in `ignore`.
    pub tag: u64,
    /// Bits of the tag that are ignored. For messages without tags: all bits.
    pub ignore: u64,
    /// Number of the peer from which the message must come (`FI_DIRECTED_RECV`); `None`: any peer.
    pub source: Option<u32>,
}

/// A piece of memory that is registered for peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// Number of the region in [`crate::Memory`].
    pub region: u64,
    /// Address of the first byte, as peers name it.
    pub addr: u64,
    /// Length of the piece in bytes.
    pub length: u64,
    /// Remote key, which the caller chooses; unique on this endpoint.
    pub rkey: u64,
    /// Access rights of peers.
    pub access: Access,
}

/// Families of operations, for rules about their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Messages, with or without tags.
    Message = 0,
    /// Reads of a peer's memory.
    Read = 1,
    /// Writes to a peer's memory.
    Write = 2,
    /// Atomic operations, with or without a fetch.
    Atomic = 3,
}

/// Number of families of operations.
pub(crate) const FAMILIES: usize = 4;

/// Rules of order between operations to one peer: which operations must not overtake earlier
/// operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// For each family of operations, the families of earlier operations that it must not overtake:
    /// one bit for each.
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

    /// Whether an operation of family `later` has to wait. `unfinished` is the number of operations
    /// of each family that have not ended.
    pub(crate) fn holds(self, later: Family, unfinished: &[u32; FAMILIES]) -> bool {
        let waits = self.waits[later as usize];
        (0..).zip(unfinished).any(|(family, count)| waits & 1 << family != 0 && *count > 0)
    }
}
