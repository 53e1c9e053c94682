//! The operations of an endpoint that have not ended, and the parts of their completions that
//! only the application needs.
//!
//! The Messaging Layer identifies an operation by a number from [`Ledger::open`]. The application
//! identifies it by a context, which several operations may share. The number of entries is limited
//! by the operations that the Messaging Layer accepts: an operation that it refuses is closed at
//! once.

use srd_efa::slots::{Key, Slots};

/// Fields of an operation's future completion.
#[derive(Debug, Default)]
pub struct Entry {
    /// The application's context of the operation.
    pub context: usize,
    /// Address of the first byte of the buffer, which the provider only returns.
    pub buffer: usize,
    /// Flags of the completion.
    pub flags: u64,
    /// Kind of the operation.
    pub sort: OpKind,
    /// Copy of the bytes, if the application may reuse its buffer at once.
    pub copy: Option<Box<[u8]>>,
}

/// Kind of an operation, as far as the ledger needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OpKind {
    /// An operation with one completion.
    #[default]
    Once,
    /// A receive, which may be cancelled.
    Receive,
    /// A receive for many messages, which ends when it is released.
    ManyReceives,
    /// A peek that claims the message that it finds.
    Claim,
    /// A claimed message that waits for its receive.
    Claimed,
}

/// Table of the entries, by number.
#[derive(Debug, Default)]
pub struct Ledger(Slots<Entry>);

impl Ledger {
    /// Stores an entry and returns its number, which is never zero and not used again soon.
    ///
    /// # Panics
    /// Never: the Messaging Layer accepts fewer than 2^32 operations.
    pub fn open(&mut self, entry: Entry) -> u64 {
        self.0.insert(entry, u32::MAX).expect("fewer operations than numbers").to_bits()
    }

    /// Returns the entry of a number.
    pub fn find(&mut self, number: u64) -> Option<&mut Entry> {
        self.0.get_mut(Key::from_bits(number))
    }

    /// Removes and returns the entry of an operation that has ended.
    pub fn close(&mut self, number: u64) -> Option<Entry> {
        self.0.remove(Key::from_bits(number))
    }

    /// Returns the numbers of the operations for which `is` returns true.
    pub fn numbers(&self, is: impl Fn(&Entry) -> bool) -> Vec<u64> {
        self.0.iter().filter(|(_, entry)| is(entry)).map(|(key, _)| key.to_bits()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(context: usize) -> Entry {
        Entry { context, ..Entry::default() }
    }

    #[test]
    fn an_entry_is_found_until_it_is_closed_and_its_number_never_names_another() {
        let mut ledger = Ledger::default();
        let first = ledger.open(entry(7));
        assert_ne!(first, 0);
        assert_eq!(ledger.find(first).unwrap().context, 7);
        assert_eq!(ledger.close(first).unwrap().context, 7);
        let second = ledger.open(entry(8));
        assert_ne!(first, second);
        assert!(ledger.find(first).is_none() && ledger.close(first).is_none());
        assert!(ledger.find(0).is_none() && ledger.find(u64::MAX).is_none());
        assert_eq!(ledger.close(second).unwrap().context, 8);
    }

    #[test]
    fn operations_are_found_by_what_they_are() {
        let mut ledger = Ledger::default();
        let numbers: Vec<_> = (0..4).map(|context| ledger.open(entry(context % 2))).collect();
        ledger.close(numbers[1]);
        assert_eq!(ledger.numbers(|entry| entry.context == 1), [numbers[3]]);
    }
}
