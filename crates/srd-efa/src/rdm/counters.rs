//! Counters since the endpoint was made, and the fill levels of its tables: for people who look
//! for growth, and for tests of bounds.

/// Counters since the endpoint was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RdmCounters {
    /// Refused: what no sender writes.
    pub malformed: u64,
    /// Refused: for another run of this endpoint, or under a session that is not open.
    pub stale: u64,
    /// Refused for now: no room.
    pub rnr: u64,
    /// Refused: memory that may not be used so.
    pub bad_address: u64,
    /// ANSWER, CREDIT, RECEIPT and RESULT that nothing waits for: taken, and without effect (H5).
    pub unasked: u64,
    /// Messages that came early: before one with a lower id.
    pub early: u64,
    /// Messages that found no receive.
    pub unexpected: u64,
    /// Sessions that we opened.
    pub sessions: u64,
    /// Messages sent as long ones because there was no credit for their bytes.
    pub long_for_credit: u64,
    /// Messages sent again because the peer had forgotten the session.
    pub sent_again: u64,
}

/// Entries of tables. Each has a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// Operations under way: at most `operations_max`.
    pub operations: usize,
    /// Receives that wait: at most `receives_max` of each sort.
    pub receives: usize,
    /// Unexpected messages: bounded by credit.
    pub messages: usize,
    /// Ended operations that wait to be polled.
    pub completions: usize,
    /// Control frames that were not settled.
    pub control_frames: usize,
    /// HELLOs that wait to be answered.
    pub hellos: usize,
    /// Long messages that are being read.
    pub reads: usize,
    /// Messages of which a part has come, or that came early.
    pub partials: usize,
    /// Bytes buffered of messages and parts that came early.
    pub reorder_bytes: usize,
    /// Peers by number.
    pub peers: usize,
}
