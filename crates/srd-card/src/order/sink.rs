//! Receiver of frames in order, and the counters of order.

use crate::meta::Meta;

/// Counters of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OrderCounts {
    /// Frames that arrived before one that was sent earlier, and waited.
    pub waited: u64,
    /// Waits that ended by timeout: frames were given up.
    pub wait_timeouts: u64,
    /// Frames that were given up.
    pub given_up: u64,
    /// Chunks that contradict their frame, arrived twice, or arrived after their frame was given
    /// up.
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

/// Key of a peer's flow: the peer's slot, and the peer's number of the flow.
pub(super) type Key = (u32, u32);

/// Slot of a flow's last frame in the flow table, which is probably the slot of the next frame.
pub(crate) type Near = Option<u32>;

/// A frame that its peer may send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// Metadata of the frame.
    pub(crate) meta: Meta,
    /// Whether the frame goes up as soon as it is complete, because its flow needs no order. // O1
    pub(crate) at_once: bool,
}

/// Receiver of frames.
pub(crate) trait Sink {
    /// Reads and checks a complete frame of a peer that would wait. The sink counts frames that it
    /// refuses.
    fn admit(&mut self, peer: u32, near: &mut Near, frame: &[u8]) -> Option<Admission>;
    /// Takes a frame of a peer in order, if it is valid and the peer may send it.
    fn take(&mut self, peer: u32, near: &mut Near, frame: &[u8]);
    /// Takes a frame that was admitted, if its peer still may send it.
    fn release(&mut self, peer: u32, near: &mut Near, meta: &Meta, frame: &[u8]);
}
