//! Wire formats between cards: frames in chunks, offers, and their queue pairs.

pub(crate) mod cloud;
pub mod frame;
pub mod offer;
pub(crate) mod queue_pairs;
