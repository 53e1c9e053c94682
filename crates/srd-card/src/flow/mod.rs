//! The flow table: state that the card keeps for each flow, in either direction.
//!
//! A packet that has been read finds the entry of its flow by its key, which is the same for both
//! directions. **Hit**: the verdict of the entry is valid if the rules have not changed since it
//! was given; otherwise the flow is judged again. **Miss**: the packet is judged, and an entry is
//! opened. Stages keep their own state of a flow in columns, by the slot of its entry: `numbering`
//! keeps the flow's numbers at the peer, [`crate::queue`] frames that wait to leave, `counts` the
//! counters.
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
//! find no free entry. A full table refuses a new flow, unless the clock hand finds an entry that
//! has been unused for a second. Entries that peers open take at most half of the table, shared
//! among the peers ([`share`]). An entry that the guest uses counts as the guest's.

pub(crate) mod counts;
pub(crate) mod numbering;
pub(crate) mod share;
pub(crate) mod table;
