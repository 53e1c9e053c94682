//! How operations are named outside of their table: in the numbers that datagrams and work requests
//! complete under, and in frames to peers.

use crate::slots::Key;

/// What our datagrams are completed under, in the upper byte.
const TAG: u8 = 0xed;
/// What our own frames are completed under, in the upper byte.
pub(crate) const TAG_CONTROL: u8 = 0xec;
/// And datagrams of several messages.
pub(crate) const TAG_BATCH: u8 = 0xee;

/// What requests for reads of long messages complete under, in the upper byte.
pub(crate) const TAG_LONG: u8 = 1;

/// What requests of reads and writes complete under, in the upper byte.
pub(crate) const TAG_RMA: u8 = 2;

/// What a datagram of an operation is completed under. `part`: which of them.
pub(crate) fn user_of(key: Key, part: u16) -> u64 {
    key.to_user_part(TAG, part)
}

/// Back from it: index, generation's low bits, part.
pub(crate) fn of_user(user: u64) -> Option<(u32, u32, u16)> {
    Key::of_user_part(user, TAG)
}
