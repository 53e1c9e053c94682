//! Counters since the endpoint was made, and the fill levels of its tables. They help users to find
//! growth, and tests to check bounds.

/// Counters since the endpoint was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RdmCounters {
    /// Frames refused because no correct sender writes them.
    pub malformed: u64,
    /// Frames refused because they are for another run of this endpoint, or for a session that is
    /// not open.
    pub stale: u64,
    /// Frames refused for now because a table is full.
    pub rnr: u64,
    /// Frames refused because they may not access the memory.
    pub bad_address: u64,
    /// ANSWER, CREDIT, RECEIPT and RESULT frames that arrived although this endpoint did not wait
    /// for them. They were accepted without effect (H5).
    pub unasked: u64,
    /// Messages that arrived before a message with a lower id.
    pub early: u64,
    /// Messages for which no receive was posted.
    pub unexpected: u64,
    /// Sessions that this endpoint opened.
    pub sessions: u64,
    /// Messages sent as long messages because there was too little credit for their bytes.
    pub long_for_credit: u64,
    /// Messages sent again because the peer had removed the session.
    pub sent_again: u64,
    /// Probes of peers for which operations waited (H8).
    pub probes: u64,
}

/// Numbers of entries in the tables. Each number has a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// Operations in progress: at most `operations_max`.
    pub operations: usize,
    /// Posted receives: at most `receives_max` with tags, and at most `receives_max` without tags.
    pub receives: usize,
    /// Unexpected messages: bounded by credit.
    pub messages: usize,
    /// Ended operations that wait to be polled.
    pub completions: usize,
    /// Control frames, such as HELLO and CREDIT, that are not settled.
    pub control_frames: usize,
    /// HELLO frames of peers that wait to be answered.
    pub hellos: usize,
    /// Long messages that are being read.
    pub reads: usize,
    /// Messages that have arrived in part, or early.
    pub partials: usize,
    /// Buffered bytes of messages and parts that arrived early.
    pub reorder_bytes: usize,
    /// Peers that have a number, whether or not the application has added them.
    pub peers: usize,
}
