//! Trailer of a frame of a cloud: it follows the frame, and contains its sender and receiver.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! | kind          | more          | port of a NAT gateway, or 0   |
//! +---------------+---------------+-------------------------------+
//! | from: identifier of the interface that sends                  |
//! |                                                               |
//! +---------------------------------------------------------------+
//! | to: identifier of the interface, or of the gateway            |
//! |                                                               |
//! +---------------------------------------------------------------+
//! ```
//!
//! The trailer follows the frame, so that a frame that was read from a device is neither copied nor
//! moved. The Express stage carries the trailer; [`crate::vpc::Envelope`] defines its meaning.
//!
//! Small frames of one flow, or of one path, may share a datagram as a bundle: the first frame;
//! then `more` further frames, each followed by its length in two bytes; then one trailer for all
//! frames.
//!
//! ```text
//! | frame | frame | length | frame | length | ... | trailer |
//! ```

use alloc::vec::Vec;

use bytes::Bytes;

use crate::meta::offload::OFFLOAD_BYTES;

/// Bytes of a trailer.
pub const TRAILER_BYTES: usize = 20;

/// Offset of the number of further frames in a trailer.
const MORE_AT: usize = 1;
/// Largest number of frames in a bundle.
pub(crate) const BUNDLE_FRAMES_MAX: usize = 32;
/// Bytes of the length field that follows each frame of a bundle except the first.
pub(crate) const LENGTH_BYTES: usize = 2;

/// Trailer of a frame or of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer(pub [u8; TRAILER_BYTES]);

impl Trailer {
    /// Splits bytes into a frame and the trailer that follows it. Returns `None` if there are fewer
    /// bytes than a trailer has.
    pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], Self)> {
        let (frame, trailer) = bytes.split_last_chunk()?;
        Some((frame, Self(*trailer)))
    }

    /// Number of frames to which the trailer belongs: more than one for a bundle.
    pub(crate) fn frames(&self) -> usize {
        1 + usize::from(self.0[MORE_AT])
    }

    /// Returns the number from which the sending interface's paths outside of SRD begin. The caller
    /// reduces it modulo the number of paths.
    pub(crate) fn first_path(&self) -> u64 {
        // Identifiers of interfaces are random, or consecutive from one on.
        self.interface().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }

    /// Identifier of the interface that sends.
    pub(crate) fn interface(&self) -> u64 {
        let [_, _, _, _, a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// Returns the trailer as for a single frame: without further frames.
    pub(crate) fn of_one(mut self) -> Self {
        self.0[MORE_AT] = 0;
        self
    }

    /// Returns a copy of a frame, followed by the trailer.
    pub(crate) fn behind(&self, frame: &[u8]) -> Bytes {
        let mut bytes = Vec::with_capacity(frame.len() + TRAILER_BYTES);
        bytes.extend_from_slice(frame);
        bytes.extend_from_slice(&self.0);
        bytes.into()
    }
}

/// Bytes of offload headers and lengths in a bundle of this number of frames.
pub(crate) fn bundle_overhead(frames: usize) -> usize {
    frames * OFFLOAD_BYTES + (frames - 1) * LENGTH_BYTES
}

/// Appends a frame, whose trailer is separate, to another frame with its trailer, or to a bundle.
/// Both need the same sender and receiver, and the result must fit `bytes_max`. Returns whether
/// the frame was added.
pub(crate) fn join(bytes: &mut Vec<u8>, frame: &[u8], trailer: &Trailer, bytes_max: usize) -> bool {
    let Some((rest, mut own)) = Trailer::split(bytes) else { return false };
    let at = rest.len();
    let fits = bytes.len() + frame.len() + LENGTH_BYTES <= bytes_max;
    if !fits || own.frames() >= BUNDLE_FRAMES_MAX || own.of_one() != *trailer {
        return false;
    }
    let Ok(length) = u16::try_from(frame.len()) else { return false };
    bytes.reserve(frame.len() + LENGTH_BYTES);
    bytes.truncate(at);
    bytes.extend_from_slice(frame);
    bytes.extend_from_slice(&length.to_be_bytes());
    own.0[MORE_AT] += 1;
    bytes.extend_from_slice(&own.0);
    true
}

/// Returns the frames of a bundle without its trailer, in order; `None` if the lengths contradict
/// the bundle.
pub(crate) fn unbundle(
    mut bytes: &[u8],
    frames: usize,
) -> Option<([&[u8]; BUNDLE_FRAMES_MAX], usize)> {
    if frames > BUNDLE_FRAMES_MAX {
        return None;
    }
    let mut all = [&[][..]; BUNDLE_FRAMES_MAX];
    for at in (1..frames).rev() {
        let (rest, length) = bytes.split_last_chunk::<LENGTH_BYTES>()?;
        let length = usize::from(u16::from_be_bytes(*length));
        let before = rest.len().checked_sub(length)?;
        (bytes, all[at]) = rest.split_at(before);
    }
    all[0] = bytes;
    Some((all, frames))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn frames_of_one_way_are_bundled_up_to_the_bounds_and_come_apart_in_their_order() {
        let trailer = Trailer([3, 0, 1, 2, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1]);
        let frame = |n: u8| vec![n; 10 + usize::from(n)];
        let mut bytes = trailer.behind(&frame(0)).to_vec();
        let mut count = 1;
        while join(&mut bytes, &frame(count), &trailer, 1400) {
            count += 1;
        }
        assert_eq!(usize::from(count), BUNDLE_FRAMES_MAX);
        let (rest, read) = Trailer::split(&bytes).unwrap();
        assert_eq!((read.of_one(), read.frames()), (trailer, BUNDLE_FRAMES_MAX));
        let (all, frames) = unbundle(rest, read.frames()).unwrap();
        assert!((0..count).zip(&all[..frames]).all(|(n, of)| *of == frame(n)));
        let mut small = trailer.behind(&frame(0)).to_vec();
        let most = small.len() + 21;
        assert!(!join(&mut small, &frame(9), &trailer, most - 1), "no room");
        assert!(join(&mut small, &frame(9), &trailer, most));
        let mut other = trailer;
        other.0[19] += 1;
        assert!(!join(&mut small, &frame(1), &other, 1400), "another receiver");
        assert!(!join(&mut vec![0; 5], &frame(1), &trailer, 1400));
    }

    #[test]
    fn lengths_that_contradict_a_bundle_are_refused() {
        assert_eq!(unbundle(&[1, 2, 3], 1).unwrap().0[0], [1, 2, 3]);
        assert!(unbundle(&[1, 2, 3, 0, 4], 2).is_none(), "longer than all");
        assert!(unbundle(&[7], 2).is_none(), "no length");
        assert!(unbundle(&[0; 400], BUNDLE_FRAMES_MAX + 1).is_none());
        assert_eq!(unbundle(&[9, 8, 7, 0, 2], 2).unwrap().0[..2], [&[9][..], &[8, 7]]);
    }

    #[test]
    fn a_trailer_stands_behind_its_frame() {
        let trailer = Trailer(core::array::from_fn(|at| u8::try_from(at).unwrap()));
        let bytes = trailer.behind(b"frame");
        assert_eq!(Trailer::split(&bytes), Some((&b"frame"[..], trailer)));
        for bytes in 0..TRAILER_BYTES {
            assert_eq!(Trailer::split(&std::vec![0; bytes]), None);
        }
    }
}
