//! The receiver of the frames that come out, and the counters of order.

use crate::meta::Meta;

/// Events of order, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OrderCounts {
    /// Frames that arrived before one that was sent earlier, and waited.
    pub waited: u64,
    /// Waits that ended by time: frames were given up.
    pub wait_timeouts: u64,
    /// Frames given up.
    pub given_up: u64,
    /// Chunks that contradict their frame, came twice, or came after their frame was given up.
    pub bad_chunks: u64,
    /// Chunks dropped because a table or buffer was full.
    pub full: u64,
}

impl core::ops::Add for OrderCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            waited: self.waited + other.waited,
            wait_timeouts: self.wait_timeouts + other.wait_timeouts,
            given_up: self.given_up + other.given_up,
            bad_chunks: self.bad_chunks + other.bad_chunks,
            full: self.full + other.full,
        }
    }
}

/// A flow of a peer: the peer's slot, and the peer's number for it.
pub(super) type Key = (u32, u32);

/// The slot in the flow table where the last frame of a flow belonged: probably that of the next.
pub(crate) type Near = Option<u32>;

/// A frame that its peer may send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// What was read from it.
    pub(crate) meta: Meta,
    /// Whether it goes up as soon as it is whole, since its flow has asked for no order. // O1
    pub(crate) at_once: bool,
}

/// The receiver of frames.
pub(crate) trait Sink {
    /// Reads and checks a whole frame of a peer that would wait. The sink counts those that it
    /// refuses.
    fn admit(&mut self, peer: u32, near: &mut Near, frame: &[u8]) -> Option<Admission>;
    /// Takes a frame of a peer in its turn, if it is one and that peer may send it.
    fn take(&mut self, peer: u32, near: &mut Near, frame: &[u8]);
    /// Takes a frame that was admitted, if its peer still may send it.
    fn release(&mut self, peer: u32, near: &mut Near, meta: &Meta, frame: &[u8]);
}
