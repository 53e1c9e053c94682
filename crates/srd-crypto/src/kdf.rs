//! HKDF-SHA256 (RFC 5869) in the two forms that this crate uses, and the types that hold secrets.
//!
//! Every label starts with the protocol's name and version, so that an output for one version or
//! purpose never equals an output for another version or purpose. After the label, `info` has
//! fixed-length fields, and at most one field of variable length at its end. So two different
//! inputs never give equal bytes.

use core::fmt;

use ring::hkdf;

/// The prefix of every label.
pub(super) const LABEL: &[u8] = b"OpenSRD/2 ";

/// The secret of one direction of a session. It is overwritten when it is dropped, and never
/// printed.
pub struct SessionSecret([u8; 32]);

/// The secrets of both directions of a session, from one side's view.
#[derive(Debug)]
pub struct SessionSecrets {
    /// Secret of the packets that this side sends.
    pub send: SessionSecret,
    /// Secret of the packets that this side receives.
    pub receive: SessionSecret,
}

impl SessionSecret {
    /// Returns the secret with these 32 bytes, which have to be uniformly random and secret.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(super) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for SessionSecret {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(..)")
    }
}

/// Overwrites a secret before its memory is released. Best effort: see "What memory keeps" in the
/// crate's documentation.
pub(super) fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    core::hint::black_box(bytes);
}

struct OutputLength(usize);

impl hkdf::KeyType for OutputLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// Computes HKDF: extracts a key from `secret` with `salt`, and expands it with the concatenation
/// of `info`.
pub(super) fn derive<const N: usize>(salt: &[u8], secret: &[u8], info: &[&[u8]]) -> [u8; N] {
    fill(&hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret), info)
}

/// Computes only HKDF-Expand, for a secret that is already uniformly random.
pub(super) fn expand<const N: usize>(secret: &[u8; 32], info: &[&[u8]]) -> [u8; N] {
    fill(&hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret), info)
}

fn fill<const N: usize>(prk: &hkdf::Prk, info: &[&[u8]]) -> [u8; N] {
    const { assert!(N <= 255 * 32, "HKDF-SHA256 yields at most 255 blocks") };
    let mut out = [0; N];
    prk.expand(info, OutputLength(N))
        .and_then(|okm| okm.fill(&mut out))
        .expect("the only failure is a length above 255 blocks, checked at compile time");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;
    use alloc::format;

    #[test]
    fn hkdf_matches_rfc_5869_case_1() {
        let okm: [u8; 42] = derive(
            &hex("000102030405060708090a0b0c"),
            &hex("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"),
            &[&hex("f0f1f2f3f4"), &hex("f5f6f7f8f9")],
        );
        let expected = hex(
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        );
        assert_eq!(okm[..], expected[..]);
    }

    #[test]
    fn hkdf_matches_rfc_5869_case_2() {
        let count = |from: u8, to: u8| (from..=to).collect::<alloc::vec::Vec<u8>>();
        let okm: [u8; 82] = derive(&count(0x60, 0xaf), &count(0x00, 0x4f), &[&count(0xb0, 0xff)]);
        let expected = hex("b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c
             59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71
             cc30c58179ec3e87c14c01d5c1f3434f1d87");
        assert_eq!(okm[..], expected[..]);
    }

    #[test]
    fn hkdf_matches_rfc_5869_case_3_without_salt_and_info() {
        let okm: [u8; 42] = derive(&[], &[0x0b; 22], &[]);
        let expected = hex(
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        );
        assert_eq!(okm[..], expected[..]);
    }

    #[test]
    fn expand_is_the_second_half_of_derive() {
        let prk = hex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
        let okm: [u8; 42] = expand(&prk.try_into().unwrap(), &[&hex("f0f1f2f3f4f5f6f7f8f9")]);
        assert_eq!(okm[..4], hex("3cb25f25")[..]);
    }

    #[test]
    fn secrets_do_not_print() {
        assert_eq!(format!("{:?}", SessionSecret::from_bytes([7; 32])), "SessionSecret(..)");
    }
}
