//! The trait through which received frames are passed on in order, and the counters of reordering.

use crate::meta::Meta;

/// Counters of the receiving side, which restores the order of each flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OrderCounts {
    /// Frames that arrived complete before an earlier frame of their flow, and waited.
    pub waited: u64,
    /// Waits for a missing frame that ended by timeout.
    pub wait_timeouts: u64,
    /// Missing or incomplete frames that a flow skipped, because the wait for them timed out.
    pub given_up: u64,
    /// Chunks that were dropped because they contradict their frame, arrived twice, or arrived
    /// after their flow had continued without them.
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

/// Interface that sends the frames of a flow, by its identifier. Zero stands for flows whose
/// interface is not known yet, and for flows of peers that send for no interface.
pub(crate) type Source = u64;

/// Slot in the flow table that the last frame of a received flow had, which is probably the slot of
/// the next frame; `None` if no slot is recorded.
pub(crate) type Near = Option<u32>;

/// Result of the check of a frame that is valid, and that its peer may send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// Metadata of the frame.
    pub(crate) meta: Meta,
    /// Sender of the frame.
    pub(crate) source: Source,
    /// Whether the frame is delivered as soon as it is complete, because its flow needs no order.
    /// // O1
    pub(crate) at_once: bool,
}

/// Receiver of complete frames.
pub(crate) trait Sink {
    /// Reads and checks a complete frame that has arrived before an earlier frame of its flow.
    /// Returns `None`, and counts the frame, if it is invalid or its peer may not send it.
    fn admit(&mut self, peer: u32, near: &mut Near, frame: &[u8]) -> Option<Admission>;
    /// Takes a frame that has arrived in order, and returns its sender. A frame that is invalid, or
    /// that its peer may not send, is counted and dropped.
    fn take(&mut self, peer: u32, near: &mut Near, frame: &[u8]) -> Source;
    /// Takes a frame that [`Sink::admit`] accepted earlier. If the rules have changed and no longer
    /// permit the peer to send it, the frame is counted and dropped.
    fn release(&mut self, peer: u32, near: &mut Near, meta: &Meta, frame: &[u8]);
}
