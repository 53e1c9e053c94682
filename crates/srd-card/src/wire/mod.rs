//! Wire formats between cards: frames in chunks, trailers of frames of clouds, offers, and the
//! queue pairs to which they are sent.

pub(crate) mod cloud;
pub mod frame;
pub mod offer;
pub(crate) mod queue_pairs;
