//! The flow table: state that the card keeps for each flow, in either direction.
//!
//! The entry of a packet's flow is found by a key that is the same for both directions. **Hit**:
//! the entry contains a verdict, which is valid if the rules have not changed since it was given;
//! otherwise the rules evaluate the flow again. **Miss**: the rules evaluate the packet, and an
//! entry is opened. Further state of a flow is in columns, which are arrays indexed by the slot of
//! its entry: `numbering` contains the flow's numbers at the peer, [`crate::queue`] the frames that
//! wait to be sent, `counts` the counters.
//!
//! # Order
//! Frames that arrived out of order are not kept in a column but in [`crate::order`], by the peer
//! and the peer's number for the flow. The reason is that a chunk carries only this number; a
//! frame may consist of many chunks, and only the complete frame contains the key. The order of a
//! flow stores the slot of the entry of its last frame, so that frames in sequence find the entry
//! without a hash.
//!
//! # Bounds
//! The table has `flows_max` entries, and one more for each peer, which stands for all flows that
//! find no free entry. A full table refuses a new flow, unless a search by the CLOCK algorithm
//! finds an entry that has been unused for a second. Entries that peers open take at most half of
//! the table, shared among the peers ([`share`]). From the guest's first packet of a flow on, the
//! entry counts as the guest's.

pub(crate) mod counts;
pub(crate) mod numbering;
pub(crate) mod share;
pub(crate) mod table;
