//! The flow table: what the card remembers of each flow that passes, in either direction.
//!
//! A packet that has been read finds the entry of its flow by its key, which is the same for both
//! directions. **Hit**: the verdict of the entry holds, if it was given under the rules of now; if
//! not, the flow is judged again. **Miss**: the packet is judged, and an entry is opened. Stages
//! keep what they remember of a flow in columns, by the slot of its entry: `numbering` the flow's
//! numbers at the peer, [`crate::queue`] frames that wait to leave, `counts`.
//!
//! # Order
//! Frames that came before their turn are not in a column but in [`crate::order`], by the peer
//! and the peer's number for the flow: a chunk carries nothing else, a frame may be in many chunks,
//! and only its whole tells the key. The order of a flow remembers the slot of the entry that its
//! last frame belonged to, so that frames in their turn find the entry without a hash.
//!
//! # Bounds
//! `flows_max` entries, and one for each peer that stands for all flows that find no room. A full
//! table refuses a flow that is new, unless a moving hand finds one that has been unused for a
//! second. Entries that peers open take half of the table at most, shared among the peers
//! ([`share`]); an entry that the guest uses is the guest's.

pub(crate) mod counts;
pub(crate) mod numbering;
pub(crate) mod share;
pub(crate) mod table;
