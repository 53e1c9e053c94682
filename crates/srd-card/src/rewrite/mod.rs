//! Changes to packets, at the offsets of [`crate::meta`]: marks, segments, fragments and answers.
//! Each file contains one kind of change.

pub mod checksum;
pub(crate) mod ecn;
pub(crate) mod fragment;
pub mod join;
pub(crate) mod mss;
pub(crate) mod segment;
pub(crate) mod too_big;
