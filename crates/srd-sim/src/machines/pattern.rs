//! Bytes for payloads: one static pattern that does not repeat at any short distance. Payloads are
//! slices of the pattern, so a receiver can check that it received the sent bytes.

use crate::engine::hash::mix;

/// Length of the pattern in bytes.
pub(crate) const PATTERN_BYTES: usize = 1 << 17;
/// The bytes from which all payloads are taken.
pub(crate) static PATTERN: [u8; PATTERN_BYTES] = pattern();

#[allow(clippy::cast_possible_truncation)] // one byte of each word is wanted
const fn pattern() -> [u8; PATTERN_BYTES] {
    let mut bytes = [0; PATTERN_BYTES];
    let mut n = 0;
    while n < PATTERN_BYTES {
        bytes[n] = mix(n as u64) as u8;
        n += 1;
    }
    bytes
}

/// Yields `bytes` bytes of the pattern, beginning at offset `place`, in pieces. After its end the
/// pattern begins anew.
pub(crate) fn pieces(place: u64, bytes: usize) -> impl Iterator<Item = &'static [u8]> {
    let first = usize::try_from(place % PATTERN_BYTES as u64).expect("below its length");
    let (mut at, mut left) = (first, bytes);
    std::iter::from_fn(move || {
        let piece = &PATTERN[at..PATTERN_BYTES.min(at + left)];
        (at, left) = (0, left - piece.len());
        (!piece.is_empty()).then_some(piece)
    })
}

/// Whether `bytes` equal the pattern from offset `place` on.
pub(crate) fn is_at(place: u64, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    pieces(place, bytes.len()).all(|piece| {
        let (now, later) = rest.split_at(piece.len());
        rest = later;
        now == piece
    })
}
