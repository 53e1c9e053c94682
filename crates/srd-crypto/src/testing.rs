//! Helpers that the tests of this crate share.

use alloc::vec::Vec;

/// Returns the bytes of a hexadecimal text; spaces are ignored.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).expect("a hexadecimal digit")).expect("below 16"))
        .collect();
    assert_eq!(digits.len() % 2, 0, "whole bytes");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Returns the bytes of a hexadecimal text as an array.
pub(super) fn hex_array<const N: usize>(text: &str) -> [u8; N] {
    hex(text).try_into().expect("the length asked for")
}
