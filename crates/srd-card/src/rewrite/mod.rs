//! Changes to packets, at the offsets that [`crate::meta`] has read: ECN marks, segmentation,
//! fragmentation, joining, MSS, and ICMP answers. Each file contains one kind of change.

pub mod checksum;
pub(crate) mod ecn;
pub(crate) mod fragment;
pub mod join;
pub(crate) mod mss;
pub(crate) mod segment;
pub(crate) mod too_big;
