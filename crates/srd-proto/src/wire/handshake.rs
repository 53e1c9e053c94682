//! Handshake packets: Hello, HelloReply, Retry, Reset; and the token of a path challenge.
//!
//! ```text
//! Hello      | MAC (128) | sender's context (32) | cookie (128, zero: none) | opening |
//! HelloReply | token (64) | answer |      (its header names the initiator's context)
//! Retry      | cookie (128) | 1 to 64 times: initiator's context (32), token (64) |
//! Reset      | context that is not known (32) | number of the packet that named it (32) |
//! Challenge  | token (64) |
//! ```
//!
//! The token of a HelloReply or Retry is the first eight bytes of the opening that it answers. They
//! are random, so an attacker that has not received the opening cannot answer it. One Retry answers
//! all openings that came from one address within a short time. So a stranger that forges the
//! address of an initiator cannot use up the initiator's Retry. The MAC covers all bytes after it.

use alloc::vec::Vec;

use super::{WireError, u32_at};

/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 16;
/// Bytes of the MAC of a Hello.
pub const MAC_BYTES: usize = 16;
/// Bytes of a token.
pub const TOKEN_BYTES: usize = 8;
/// Maximum number of openings that one Retry answers.
pub const RETRIED_MAX: usize = 64;
/// Maximum length of an opening in bytes. The minimum is the length of a token.
pub const NOISE_BYTES_MAX: usize = 256;

/// First bytes of an opening, which identify it in an answer; or the random bytes of a challenge.
pub type Token = [u8; TOKEN_BYTES];

/// The body of a Hello, the first handshake packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// Proves that the sender has the responder's public key or the job key.
    pub mac: [u8; MAC_BYTES],
    /// Context number that the initiator has assigned, not zero.
    pub context: u32,
    /// The cookie that the responder demanded; zero bytes if it has demanded no cookie.
    pub cookie: [u8; COOKIE_BYTES],
    /// The opening: the first Noise message, or a sealed greeting. It is at least as long as a
    /// token.
    pub noise: &'a [u8],
}

impl<'a> Hello<'a> {
    /// Appends the body of the Hello to a packet.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.mac);
        self.encode_rest(out);
    }

    /// Appends the part of the body that the MAC covers: all bytes after the MAC.
    pub fn encode_rest(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.context.to_be_bytes());
        out.extend_from_slice(&self.cookie);
        out.extend_from_slice(self.noise);
    }

    /// Reads the body of a Hello.
    ///
    /// # Errors
    /// Returns an error if there are too few or too many bytes, or if the context is zero.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (mac, rest) = bytes.split_first_chunk::<MAC_BYTES>().ok_or(WireError::Malformed)?;
        let (context, rest) = rest.split_first_chunk::<4>().ok_or(WireError::Malformed)?;
        let (cookie, noise) =
            rest.split_first_chunk::<COOKIE_BYTES>().ok_or(WireError::Malformed)?;
        let context = u32::from_be_bytes(*context);
        if context == 0 || !(TOKEN_BYTES..=NOISE_BYTES_MAX).contains(&noise.len()) {
            return Err(WireError::Malformed);
        }
        Ok(Self { mac: *mac, context, cookie: *cookie, noise })
    }
}

/// Token of an opening: its first eight bytes. Zero bytes if the opening is shorter.
pub fn token_of(opening: &[u8]) -> Token {
    opening.first_chunk().copied().unwrap_or_default()
}

/// Splits the body of a HelloReply into token and answer.
///
/// # Errors
/// Returns an error if there are too few bytes.
pub fn decode_hello_reply(bytes: &[u8]) -> Result<(Token, &[u8]), WireError> {
    let (token, answer) = bytes.split_first_chunk().ok_or(WireError::Malformed)?;
    Ok((*token, answer))
}

/// Reads the token of a Challenge or ChallengeReply.
///
/// # Errors
/// Returns an error if the length is wrong.
pub fn decode_token(bytes: &[u8]) -> Result<Token, WireError> {
    bytes.try_into().map_err(|_| WireError::Malformed)
}

/// Body of a Reset: the refusal of a packet that names a context that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reset {
    /// Context number that the refused packet named.
    pub context: u32,
    /// Low 32 bits of the number of the refused packet.
    pub number: u32,
}

impl Reset {
    /// Appends the body of the Reset to a packet.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.context.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
    }

    /// Reads the body of a Reset.
    ///
    /// # Errors
    /// Returns an error if the length is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() != 8 {
            return Err(WireError::Malformed);
        }
        Ok(Self { context: u32_at(bytes, 0), number: u32_at(bytes, 4) })
    }
}

/// An opening that a Retry answers: the initiator's context number, and the token of the opening.
pub type Retried = (u32, Token);

/// Bytes of one [`Retried`].
const RETRIED_BYTES: usize = 4 + TOKEN_BYTES;

/// Appends one answered opening to the body of a Retry.
pub fn encode_retried(out: &mut Vec<u8>, (context, token): Retried) {
    out.extend_from_slice(&context.to_be_bytes());
    out.extend_from_slice(&token);
}

/// Reads the body of a Retry: the cookie, and the openings that it answers.
///
/// # Errors
/// Returns an error if the length is wrong, if there is no opening or more than [`RETRIED_MAX`], or
/// if a context number is zero.
pub fn decode_retry(
    bytes: &[u8],
) -> Result<([u8; COOKIE_BYTES], impl Iterator<Item = Retried>), WireError> {
    let (cookie, rest) = bytes.split_first_chunk().ok_or(WireError::Malformed)?;
    let (retried, remainder) = rest.as_chunks::<RETRIED_BYTES>();
    let retried = retried.iter().map(|bytes| (u32_at(bytes, 0), token_of(&bytes[4..])));
    let sound = remainder.is_empty()
        && (1..=RETRIED_MAX).contains(&retried.len())
        && retried.clone().all(|(context, _)| context != 0);
    if sound { Ok((*cookie, retried)) } else { Err(WireError::Malformed) }
}
