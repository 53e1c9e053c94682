//! Header of state that one program passes to another: the format's name, the kind of state, and
//! the version.
//!
//! ```text
//!  0  "SRDCARD" and the kind
//!  8  version, 16 bits, little-endian
//! 10  the state
//! ```

use alloc::vec::Vec;

use crate::store::StoredError;

/// Version of the format. The number changes whenever the fields or their meaning change.
pub const VERSION: u16 = 4;

/// Kind of state: a card's state, or the state of the NAT gateways of an edge (a host that connects
/// gateways to the network outside of the cloud).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::vpc) enum Kind {
    Card = b'C' as isize,
    Nat = b'N' as isize,
}

impl Kind {
    fn magic(self) -> [u8; 8] {
        let [kind, ..] = (self as u32).to_le_bytes();
        [b'S', b'R', b'D', b'C', b'A', b'R', b'D', kind]
    }
}

pub(in crate::vpc) fn head(kind: Kind) -> Vec<u8> {
    [&kind.magic()[..], &VERSION.to_le_bytes()].concat()
}

/// Checks the header, and returns the bytes after it.
pub(in crate::vpc) fn body(kind: Kind, bytes: &[u8]) -> Result<&[u8], StoredError> {
    let (magic, rest) = bytes.split_first_chunk().ok_or(StoredError::Short)?;
    let (version, rest) = rest.split_first_chunk().ok_or(StoredError::Short)?;
    if *magic != kind.magic() {
        return Err(StoredError::NotOurs);
    }
    match u16::from_le_bytes(*version) {
        VERSION => Ok(rest),
        found => Err(StoredError::Version { found, wanted: VERSION }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vpc::tables::nat::Nat;
    use std::string::ToString;

    #[test]
    fn state_of_another_kind_or_version_is_refused_with_a_remedy() {
        let bytes = Nat::default().export();
        assert!(Nat::import(&bytes).is_ok());
        let error = |bytes: &[u8]| Nat::import(bytes).unwrap_err();
        for end in 0..bytes.len() {
            assert_eq!(error(&bytes[..end]), StoredError::Short);
        }
        assert_eq!(error(&[&bytes[..], &[0]].concat()), StoredError::Long);
        let mut other = bytes.clone();
        other[7] = b'C';
        assert_eq!(error(&other), StoredError::NotOurs);
        let mut later = bytes;
        later[8] += 1;
        assert_eq!(error(&later), StoredError::Version { found: VERSION + 1, wanted: VERSION });
        assert!(error(&later).to_string().contains("end the other card first"));
    }
}
