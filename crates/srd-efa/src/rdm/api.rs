//! What callers of the messaging layer say, and what it says to them.

use core::net::SocketAddr;

use srd_proto::{AddPeerError, Endpoint, Instant, PeerConfig, PeerId};

use crate::memory::Memory;
use crate::rdm::receive::matching::Want;

/// A peer, by a small number: the lowest free one when it became known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Peer(pub u32);

/// What belongs to the world, lent for one call.
pub struct World<'a> {
    /// The present.
    pub now: Instant,
    /// The transport.
    pub endpoint: &'a mut Endpoint,
    /// The application's memory. Region 0 is all of its own address space: offsets are addresses.
    /// Others are those of registrations.
    pub memory: &'a mut dyn Memory,
}

impl World<'_> {
    /// The transport's peer at an address, made known if it was not, and kept.
    pub(crate) fn keep_peer(&mut self, address: SocketAddr) -> Result<PeerId, Refused> {
        let known = self.endpoint.peer_at(address);
        let id = match known {
            Some(id) => id,
            None => {
                let added = self.endpoint.add_peer(self.now, PeerConfig::at(address));
                added.map_err(|error| match error {
                    AddPeerError::TooManyPeers => Refused::Again,
                    _ => Refused::Invalid,
                })?
            }
        };
        self.endpoint.keep_peer(id);
        Ok(id)
    }
}

/// A piece of the application's own memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
}

/// A piece of a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemotePiece {
    /// Address of the first byte, as the peer registered it.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// The registration's key.
    pub rkey: u64,
}

/// When an operation completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Its buffers may be used again as soon as the call returns (`FI_INJECT`); the bytes are
    /// copied, at most [`crate::rdm::Rdm::inject_bytes_max`]. Its end is told at once; should it fail
    /// later, that is told as a second end of the same context.
    Injected,
    /// The peer's transport has it (`FI_TRANSMIT_COMPLETE`).
    Transmitted,
    /// It stands in the peer's memory, where the application said (`FI_DELIVERY_COMPLETE`).
    Delivered,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// To whom.
    pub to: Peer,
    /// Its tag; `None` for a message without one, which only receives without one match.
    pub tag: Option<u64>,
    /// Its bytes.
    pub pieces: &'a [Piece],
    /// Data for the receiver's completion.
    pub data: Option<u64>,
    /// Handed back in the completion.
    pub context: u64,
    /// When it completes.
    pub until: Until,
    /// Whether success is told (`FI_COMPLETION`); failure always is.
    pub tell: bool,
}

/// Room for a message, or for many.
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// Whether it is for messages with tags.
    pub tagged: bool,
    /// Which messages. Without tags: `ignore` is all ones.
    pub want: Want,
    /// Where they go.
    pub pieces: &'a [Piece],
    /// Handed back in completions.
    pub context: u64,
    /// `FI_MULTI_RECV`: messages go one behind the other, until less than this is left.
    pub multi: Option<u64>,
    /// Whether success is told; failure always is.
    pub tell: bool,
}

/// What to do with an unexpected message that is looked for.
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
    /// Whose memory.
    pub to: Peer,
    /// Read it; else write it.
    pub read: bool,
    /// Our end.
    pub local: &'a [Piece],
    /// The peer's end: as many bytes.
    pub remote: &'a [RemotePiece],
    /// Data for a completion at the peer, for writes.
    pub data: Option<u64>,
    /// Handed back in the completion.
    pub context: u64,
    /// When it completes.
    pub until: Until,
    /// Whether success is told; failure always is.
    pub tell: bool,
}

/// What elements of an atomic operation are.
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

/// What happens to each element `d` with operand `s` (and comparand `c`).
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
    /// Whose memory.
    pub to: Peer,
    /// What happens.
    pub op: AtomicOp,
    /// To elements of this type.
    pub datatype: Datatype,
    /// Operands; none for a read.
    pub operand: &'a [Piece],
    /// Comparands, for swaps under conditions.
    pub compare: &'a [Piece],
    /// Where the elements from before go; none if nobody asks.
    pub result: &'a [Piece],
    /// The peer's elements.
    pub remote: &'a [RemotePiece],
    /// Handed back in the completion.
    pub context: u64,
    /// When it completes, if it fetches nothing.
    pub until: Until,
    /// Whether success is told; failure always is.
    pub tell: bool,
}

/// Why a call was refused: nothing has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no room now. Try again after progress.
    Again,
    /// There is no such peer.
    NoSuchPeer,
    /// More bytes than this can carry.
    TooLong,
    /// The pieces do not fit each other, or the operation makes no sense.
    Invalid,
}

/// What came to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A message was sent.
    Send,
    /// A message was received.
    Receive,
    /// A peer's memory was read.
    Read,
    /// A peer's memory was written.
    Write,
    /// An atomic operation that fetches nothing.
    Atomic,
    /// An atomic operation that fetches.
    FetchAtomic,
    /// A peer wrote our memory; told with the peer's data, or if `tell_remote` is set.
    RemoteWrite,
    /// A peer read our memory; told if `tell_remote` is set.
    RemoteRead,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Well.
    Ok,
    /// It was cancelled.
    Cancelled,
    /// The message was longer than its receive: so many bytes found no room.
    Truncated(u64),
    /// Nothing was found ([`Peek`]).
    NoMessage,
    /// The peer never answered.
    Unreachable,
    /// The peer answered before and has gone silent.
    Unresponsive,
    /// The peer has restarted, or its address belongs to another run than the one meant.
    Restarted,
    /// The peer was removed.
    Removed,
    /// The peer's memory: no such key, out of its bounds, or no right to it.
    BadKey,
    /// The peer does not do this, or answered with what makes no sense.
    Protocol,
    /// A message of one datagram that the path does not pass, or the peer's receive does not hold:
    /// never here, only of [`crate::direct`].
    TooLong,
}

/// Something came to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// What.
    pub kind: Kind,
    /// How.
    pub outcome: Outcome,
    /// The number given with it; zero for what peers did.
    pub context: u64,
    /// Whether it was a message with a tag.
    pub tagged: bool,
    /// Whether it is to be told in a completion queue: a success that nobody asked to hear of
    /// still counts.
    pub tell: bool,
    /// The peer at the other end, if there is one.
    pub peer: Option<Peer>,
    /// Bytes received, or asked for.
    pub length: u64,
    /// Where they begin, of a receive for many messages: bytes from its start.
    pub offset: u64,
    /// The message's tag, or zero.
    pub tag: u64,
    /// The sender's data.
    pub data: Option<u64>,
    /// A receive for many messages is over with this: no more will come.
    pub released: bool,
}
