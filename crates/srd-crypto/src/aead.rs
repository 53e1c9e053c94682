//! AES-256-GCM over one packet, in place.
//!
//! # The nonce rule
//!
//! ```text
//!  0                   4                                           12
//! +-------------------+---------------------------------------------+
//! | salt (from key    | space (1 bit) | packet number (63 bits),    |
//! | schedule)         |               | big endian                  |
//! +-------------------+---------------------------------------------+
//! ```
//!
//! A key belongs to one direction of one generation of one session. A (space, number) pair is
//! sealed at most once in a session. A retransmission is a new packet with a new number: its header
//! differs (time stamp, floor, flags), so sealing it with the old nonce would break the cipher. The
//! two spaces let data and control packets have separate counters under one key.
//! [`super::SessionKeys`] enforces the rule; the keys here do not check it.
//!
//! # What is authenticated
//!
//! The associated data is the packet's header, as sent. Fields that a switch hashes or rewrites
//! (addresses, ports, flow label, ECN) are outside of the datagram, and so are not covered by the
//! tag.
//!
//! # Bounds
//!
//! One key seals at most [`FloorLimits::BLOCKS_MAX`] blocks, independent of the configuration.

use alloc::vec::Vec;
use core::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Bytes by which sealing extends a body.
pub const TAG_BYTES: usize = 16;

/// Largest packet number, which has 63 bits. The top bit of the nonce's counter is the number space
/// ([`Space`]).
pub const NUMBER_MAX: u64 = (1 << 63) - 1;

/// Number space of a packet number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// Data packets, numbered by PSN.
    Data,
    /// All other packets: acknowledgements, credit, probes, resets.
    Control,
}

/// Reason why a packet could not be opened. The caller counts the packet and drops it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The packet is shorter than a tag.
    TooShort,
    /// The packet number is larger than any that a sender uses.
    NumberTooLarge,
    /// There is no key for the packet's phase: it is not the current or the next phase, and not the
    /// previous phase within its grace time.
    UnknownPhase,
    /// The tag does not match.
    Unauthentic,
    /// The key has reached [`FloorLimits::FORGERIES_MAX`] forgeries, and opens no more packets.
    Exhausted,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "the packet is shorter than its tag",
            Self::NumberTooLarge => "the packet number is above 2^63 - 1",
            Self::UnknownPhase => "no key is held for the packet's key phase",
            Self::Unauthentic => "the packet's tag does not match",
            Self::Exhausted => "the key has met too many forgeries",
        })
    }
}

impl core::error::Error for OpenError {}

/// A key that seals packets.
pub struct SealKey(Cipher);

/// A key that opens packets.
pub struct OpenKey(Cipher);

struct Cipher {
    key: LessSafeKey,
    salt: [u8; 4],
}

impl Cipher {
    fn new(key: &[u8; 32], salt: [u8; 4]) -> Self {
        // S2: AES-256-GCM
        let key = UnboundKey::new(&AES_256_GCM, key).expect("an AES-256 key has 32 bytes");
        Self { key: LessSafeKey::new(key), salt }
    }

    fn nonce(&self, space: Space, number: u64) -> Nonce {
        let space_bit = match space {
            Space::Data => 0,
            Space::Control => 1 << 63,
        };
        // S3: Nonce
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&self.salt);
        nonce[4..].copy_from_slice(&(space_bit | number).to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

impl SealKey {
    /// Creates a sealing key from an AES key and a nonce salt, which the key schedule derives.
    pub fn new(key: &[u8; 32], salt: [u8; 4]) -> Self {
        Self(Cipher::new(key, salt))
    }

    /// Seals `body[body_start..]` in place and appends the tag.
    ///
    /// # Panics
    /// If `number` is above [`NUMBER_MAX`], or `body_start` is beyond the end of `body`: errors of
    /// the caller.
    pub fn seal(
        &self,
        space: Space,
        number: u64,
        aad: &[u8],
        body: &mut Vec<u8>,
        body_start: usize,
    ) {
        let tag = self.seal_detached(space, number, aad, &mut body[body_start..]);
        body.extend_from_slice(&tag);
    }

    /// Seals the last packet of a batch. Its header `batch[header_start..body_start]` is the
    /// associated data, and its body is `batch[body_start..]`. Appends the tag.
    ///
    /// # Panics
    /// In the cases of [`SealKey::seal`], and if `header_start` is beyond `body_start`.
    pub fn seal_packet(
        &self,
        space: Space,
        number: u64,
        batch: &mut Vec<u8>,
        header_start: usize,
        body_start: usize,
    ) {
        let (head, body) = batch.split_at_mut(body_start);
        let tag = self.seal_detached(space, number, &head[header_start..], body);
        batch.extend_from_slice(&tag);
    }

    /// Seals `body` in place, and returns the tag without appending it.
    ///
    /// # Panics
    /// If `number` is above [`NUMBER_MAX`].
    #[must_use]
    pub fn seal_detached(
        &self,
        space: Space,
        number: u64,
        aad: &[u8],
        body: &mut [u8],
    ) -> [u8; TAG_BYTES] {
        assert!(number <= NUMBER_MAX, "a nonce would repeat");
        let tag = self
            .0
            .key
            .seal_in_place_separate_tag(self.0.nonce(space, number), Aad::from(aad), body)
            .expect("the only failure is a body above 64 GiB");
        let mut out = [0; TAG_BYTES];
        out.copy_from_slice(tag.as_ref());
        out
    }
}

impl OpenKey {
    /// Creates an opening key from an AES key and a nonce salt, which the key schedule derives.
    pub fn new(key: &[u8; 32], salt: [u8; 4]) -> Self {
        Self(Cipher::new(key, salt))
    }

    /// Opens a packet in place, and returns the body without its tag.
    ///
    /// # Errors
    /// `TooShort`, `NumberTooLarge` or `Unauthentic`, as described at [`OpenError`]. After
    /// `Unauthentic` the contents of `body_and_tag` are unspecified, so another key cannot be
    /// tried.
    pub fn open<'a>(
        &self,
        space: Space,
        number: u64,
        aad: &[u8],
        body_and_tag: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        if number > NUMBER_MAX {
            return Err(OpenError::NumberTooLarge);
        }
        if body_and_tag.len() < TAG_BYTES {
            return Err(OpenError::TooShort);
        }
        self.0
            .key
            .open_in_place(self.0.nonce(space, number), Aad::from(aad), body_and_tag)
            .map_err(|_| OpenError::Unauthentic)
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

impl fmt::Debug for OpenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenKey(..)")
    }
}

/// Counters of one key's use, with limits that no configuration can raise.
///
/// The limits are those of RFC 9001, appendix B, for AES-GCM. With 2^35 sealed blocks, an
/// attacker's advantage in distinguishing ciphertext from noise stays below 2^-57. With 2^52 failed
/// openings of packets of up to 2^16 bytes, the probability of one forgery stays below 2^-57. At
/// 100 Gb/s the first limit is reached after 44 s. The second limit is never reached within a key's
/// life; it is counted because the counter costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct FloorLimits {
    packets: u64,
    blocks: u64,
    forgeries: u64,
}

impl FloorLimits {
    /// Largest number of 16-byte blocks that one key seals. A tag counts as one block.
    pub const BLOCKS_MAX: u64 = 1 << 35;
    /// Number of forgeries after which a key opens no more packets.
    pub const FORGERIES_MAX: u64 = 1 << 52;

    /// Records a packet of `body_bytes` that the key sealed or opened.
    pub fn on_packet(&mut self, body_bytes: usize) {
        self.packets = self.packets.saturating_add(1);
        self.blocks = self.blocks.saturating_add(blocks(body_bytes));
    }

    /// Records a packet that failed to open.
    pub fn on_forgery(&mut self) {
        self.forgeries = self.forgeries.saturating_add(1);
    }

    /// Returns the number of packets sealed or opened so far.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of packets that failed to open so far.
    pub const fn forgeries(&self) -> u64 {
        self.forgeries
    }

    /// Whether seven eighths of the blocks are used, so that the key should be replaced. The
    /// remaining blocks serve until the peer confirms.
    pub const fn rotation_due(&self) -> bool {
        self.blocks >= Self::BLOCKS_MAX / 8 * 7
    }

    /// Whether half of the blocks that the key may process are used.
    pub const fn half_used(&self) -> bool {
        self.blocks >= Self::BLOCKS_MAX / 2
    }

    /// Whether sealing a body of `body_bytes` would exceed the limit.
    pub fn seal_refused(&self, body_bytes: usize) -> bool {
        self.blocks.saturating_add(blocks(body_bytes)) > Self::BLOCKS_MAX
    }

    /// Whether the key has reached the limit of forgeries, and opens no more packets.
    pub const fn open_refused(&self) -> bool {
        self.forgeries >= Self::FORGERIES_MAX
    }

    #[cfg(test)]
    pub(super) const fn with_blocks(blocks: u64) -> Self {
        Self { packets: 0, blocks, forgeries: 0 }
    }

    #[cfg(test)]
    pub(super) const fn with_forgeries(forgeries: u64) -> Self {
        Self { packets: 0, blocks: 0, forgeries }
    }
}

/// Returns the number of block cipher calls for a body: one for each of its blocks, and one for the
/// tag.
fn blocks(body_bytes: usize) -> u64 {
    u64::try_from(body_bytes.div_ceil(16)).unwrap_or(u64::MAX - 1) + 1
}

#[cfg(test)]
mod tests;
