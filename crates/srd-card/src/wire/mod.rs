//! What cards write to each other: frames in chunks, and offers, and to which queue pairs.

pub(crate) mod cloud;
pub mod frame;
pub mod offer;
pub(crate) mod queue_pairs;
