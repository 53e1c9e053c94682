//! Changes to packets, at the offsets that [`crate::meta`] has found: marks, cuts and answers. Each
//! file holds one of them.

pub mod checksum;
pub(crate) mod ecn;
pub(crate) mod fragment;
pub mod join;
pub(crate) mod mss;
pub(crate) mod segment;
pub(crate) mod too_big;
