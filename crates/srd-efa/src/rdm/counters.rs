//! What was counted since the endpoint was made, and what it holds at the moment: for people who look
//! for what grows, and for tests of bounds.

/// What was counted since the endpoint was made.
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
    /// Words that nobody waits for: an answer, credit, a receipt or a result for what is not under
    /// way. Taken, and without effect.
    pub unasked: u64,
    /// Messages that came before their turn.
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
    /// Messages that nobody has asked for: by credit.
    pub messages: usize,
    /// Ends that nobody has polled.
    pub ends: usize,
    /// Frames of our own that were not settled.
    pub words: usize,
    /// Greetings that wait to be answered.
    pub greetings: usize,
    /// Long messages that are being read.
    pub reads: usize,
    /// Messages of which a part has come, or that came before their turn.
    pub partials: usize,
    /// Bytes kept of what came before its turn.
    pub reorder_bytes: usize,
    /// Peers by number.
    pub peers: usize,
}
