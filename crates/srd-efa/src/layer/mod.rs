//! What the Messaging Layer and the plain verbs have in common: what callers ask of them, and what
//! they are told.
//!
//! | module | what |
//! |---|---|
//! | `world` | what a call is lent, whom it names, and why it may be refused |
//! | `request` | messages, receives, reads and writes, atomic operations |
//! | `completion` | operations that have ended |

pub(crate) mod completion;
pub(crate) mod request;
pub(crate) mod world;

pub use completion::{Done, Kind, Outcome};
pub use request::{
    Atomic, AtomicOp, Datatype, Family, Message, Order, Peek, Piece, Receive, RemotePiece, Rma,
    Shared, Until, Want,
};
pub use world::{Peer, Refused, World};
