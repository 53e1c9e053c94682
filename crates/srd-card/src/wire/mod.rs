//! What cards write to each other: frames in chunks, and offers.

pub mod frame;
pub mod offer;
