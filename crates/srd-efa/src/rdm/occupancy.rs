//! What an endpoint holds at the moment: for people who look for what grows, and for tests of
//! bounds.

use crate::rdm::Rdm;

/// Entries of tables. Each has a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
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

impl Rdm {
    /// What it holds now.
    pub fn held(&self) -> Held {
        let (tagged, plain) = (self.tagged.len(), self.plain.len());
        Held {
            operations: self.ops.len(),
            receives: tagged.0 + plain.0,
            messages: tagged.1 + plain.1,
            ends: self.done.len(),
            words: self.controls.len(),
            greetings: self.hellos.len(),
            reads: self.readings.len(),
            partials: self.partials.len(),
            reorder_bytes: self.reorder_bytes,
            peers: self.entries.len() - self.free.len(),
        }
    }
}
