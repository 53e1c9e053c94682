//! How operations are named outside of their table: in the numbers that datagrams and work requests
//! complete under, and in frames to peers.

use crate::slots::Key;

/// The upper byte of the numbers of operations' datagrams.
const TAG: u8 = 0xed;
/// Of control frames.
pub(crate) const TAG_CONTROL: u8 = 0xec;
/// Of batches.
pub(crate) const TAG_BATCH: u8 = 0xee;

/// Of work requests that read long messages.
pub(crate) const TAG_LONG: u8 = 1;

/// Of work requests of reads and writes.
pub(crate) const TAG_RMA: u8 = 2;

/// The number of a datagram of an operation. `part`: which of them.
pub(crate) fn user_of(key: Key, part: u16) -> u64 {
    key.to_user_part(TAG, part)
}

/// Back from it: index, generation's low bits, part.
pub(crate) fn of_user(user: u64) -> Option<(u32, u32, u16)> {
    Key::of_user_part(user, TAG)
}
