//! The trailer of a frame of a cloud: from where to where it goes, behind the frame.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! | kind          | 0             | port of a NAT gateway, or 0   |
//! +---------------+---------------+-------------------------------+
//! | from: identifier of the interface that sends                  |
//! |                                                               |
//! +---------------------------------------------------------------+
//! | to: identifier of the interface, or of the gateway            |
//! |                                                               |
//! +---------------------------------------------------------------+
//! ```
//!
//! It stands behind the frame, so that a frame that was read from a device is neither copied nor
//! moved. The stage carries it; [`crate::vpc::Envelope`] is its meaning.

use alloc::vec::Vec;

use bytes::Bytes;

/// Bytes of a trailer.
pub const TRAILER_BYTES: usize = 20;

/// A trailer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer(pub [u8; TRAILER_BYTES]);

impl Trailer {
    /// A frame, and the trailer behind it.
    pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], Self)> {
        let (frame, trailer) = bytes.split_last_chunk()?;
        Some((frame, Self(*trailer)))
    }

    /// Takes the trailer from behind a frame.
    pub(crate) fn take(frame: &mut Vec<u8>) -> Option<Self> {
        let (rest, trailer) = Self::split(frame)?;
        let bytes = rest.len();
        frame.truncate(bytes);
        Some(trailer)
    }

    /// The trailer behind a copy of a frame.
    pub(crate) fn behind(&self, frame: &[u8]) -> Bytes {
        let mut bytes = Vec::with_capacity(frame.len() + TRAILER_BYTES);
        bytes.extend_from_slice(frame);
        bytes.extend_from_slice(&self.0);
        bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_is_taken_from_behind_its_frame() {
        let trailer = Trailer(core::array::from_fn(|at| u8::try_from(at).unwrap()));
        let bytes = trailer.behind(b"frame");
        assert_eq!(Trailer::split(&bytes), Some((&b"frame"[..], trailer)));
        let mut frame = bytes.to_vec();
        assert_eq!((Trailer::take(&mut frame), &frame[..]), (Some(trailer), &b"frame"[..]));
        for bytes in 0..TRAILER_BYTES {
            assert_eq!(Trailer::take(&mut std::vec![0; bytes]), None);
        }
    }
}
