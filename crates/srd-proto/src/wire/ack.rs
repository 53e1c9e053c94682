//! An acknowledgement: the packets that have arrived, the delay of each path, and the credit limit.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |   cumulative: every PSN below is settled (low 32 bits)        |
//! +---------------------------------------------------------------+
//! |   datagram bytes received, each datagram once, modulo 2^32    |
//! +---------------------------------------------------------------+
//! |   credit limit: received + in flight may reach it, modulo 2^32|
//! +---------------+---------------+---------------+---------------+
//! |     flags     |  SACK words   |    tuples     |   verdicts    |
//! +---------------+---------------+---------------+---------------+
//! |        senders sharing        |      CE bits of tuples        |
//! +-------------------------------+-------------------------------+
//! | if ECHO: number of the probe, then its delay as below         |
//! +---------------------------------------------------------------+
//! | SACK words, 64 bits each, from PSN (cumulative & ~63) up;     |
//! | the least significant bit is the lowest PSN                   |
//! +---------------------------------------------------------------+
//! | tuples: PSN, then receive time - send time (ns, modulo 2^32)  |
//! +---------------------------------------------------------------+
//! | verdicts: PSN (4 bytes), status (1 byte)                      |
//! +---------------------------------------------------------------+
//! ```

use alloc::vec::Vec;

use super::{WireError, u16_at, u32_at, u64_at};

/// Bytes of an acknowledgement before the part of variable length.
pub const ACK_BYTES: usize = 20;
/// Bytes of the echo of a probe.
pub const ECHO_BYTES: usize = 8;
/// Bytes of a tuple, the observation of one packet.
pub const TUPLE_BYTES: usize = 8;
/// Bytes of a verdict: PSN and status.
pub const VERDICT_BYTES: usize = 5;
/// Maximum number of SACK words. Bitmaps of 4,096 PSNs need so many, because they begin at a
/// multiple of 64.
pub const SACK_WORDS_MAX: usize = 65;
/// Maximum number of tuples: there is one CE bit for each.
pub const TUPLES_MAX: usize = 16;
/// Maximum number of verdicts.
pub const VERDICTS_MAX: usize = 64;

/// Flag: the credit limit applies; without it only the congestion window limits the sender.
pub const ACK_CREDIT_LIMITED: u8 = 0x01;
/// Flag: the Ack answers a probe.
pub const ACK_ECHO: u8 = 0x02;

/// The fixed part of an acknowledgement, and the echo of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AckHead {
    /// Low 32 bits of the lowest PSN that is not settled.
    pub cumulative: u32,
    /// Datagram bytes received, each datagram counted once, modulo 2^32.
    pub received_bytes: u32,
    /// Credit limit: upper bound of received and in-flight bytes, modulo 2^32.
    pub credit_limit_bytes: u32,
    /// Whether `credit_limit_bytes` limits the sender.
    pub credit_limited: bool,
    /// Number of senders that share the receiver.
    pub senders: u16,
    /// Number and delay of the probe that this Ack answers; `None` if it answers no probe.
    pub echo: Option<(u32, u32)>,
}

/// The observation of one packet: its PSN, delay and mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tuple {
    /// Low 32 bits of the PSN of the observed packet.
    pub psn: u32,
    /// Receive time minus send time, modulo 2^32 ns; only differences between delays have a
    /// meaning.
    pub delay: u32,
    /// Whether this packet, or another that the observation represents, arrived with a mark (CE).
    pub ce: bool,
}

/// The refusal of a datagram that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Low 32 bits of the PSN of the refused packet.
    pub psn: u32,
    /// Status of the refusal: the number of an EFA completion status, 1..=255.
    pub status: u8,
}

/// Appends an acknowledgement. A slice must not be longer than `SACK_WORDS_MAX`, `TUPLES_MAX` or
/// `VERDICTS_MAX`.
#[allow(clippy::cast_possible_truncation)] // the lengths are bounded below 256
pub fn encode(
    out: &mut Vec<u8>,
    head: &AckHead,
    sack: &[u64],
    tuples: &[Tuple],
    verdicts: &[Verdict],
) {
    debug_assert!(sack.len() <= SACK_WORDS_MAX && tuples.len() <= TUPLES_MAX);
    debug_assert!(verdicts.len() <= VERDICTS_MAX);
    let mut flags = 0;
    if head.credit_limited {
        flags |= ACK_CREDIT_LIMITED;
    }
    if head.echo.is_some() {
        flags |= ACK_ECHO;
    }
    let ce = tuples.iter().enumerate().fold(0u16, |bits, (i, t)| bits | u16::from(t.ce) << i);
    let mut b = [0; ACK_BYTES];
    b[0..4].copy_from_slice(&head.cumulative.to_be_bytes());
    b[4..8].copy_from_slice(&head.received_bytes.to_be_bytes());
    b[8..12].copy_from_slice(&head.credit_limit_bytes.to_be_bytes());
    b[12..16].copy_from_slice(&[flags, sack.len() as u8, tuples.len() as u8, verdicts.len() as u8]);
    b[16..18].copy_from_slice(&head.senders.to_be_bytes());
    b[18..20].copy_from_slice(&ce.to_be_bytes());
    out.extend_from_slice(&b);
    if let Some((number, delay)) = head.echo {
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&delay.to_be_bytes());
    }
    for word in sack {
        out.extend_from_slice(&word.to_be_bytes());
    }
    for tuple in tuples {
        out.extend_from_slice(&tuple.psn.to_be_bytes());
        out.extend_from_slice(&tuple.delay.to_be_bytes());
    }
    for verdict in verdicts {
        out.extend_from_slice(&verdict.psn.to_be_bytes());
        out.push(verdict.status);
    }
}

/// A view of a received acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct AckView<'a> {
    /// The fixed part of the acknowledgement.
    pub head: AckHead,
    sack: &'a [u8],
    tuples: &'a [u8],
    verdicts: &'a [u8],
    ce: u16,
}

impl<'a> AckView<'a> {
    /// Reads an acknowledgement. No bytes may follow it.
    ///
    /// # Errors
    /// Returns an error if lengths do not agree, or if a count or flag is out of range.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (ack, rest) = Self::decode_first(bytes)?;
        if rest.is_empty() { Ok(ack) } else { Err(WireError::Malformed) }
    }

    /// Reads an acknowledgement at the start of `bytes`. Also returns the bytes that follow it.
    ///
    /// # Errors
    /// Returns the errors of [`Self::decode`], but not an error if bytes follow.
    pub fn decode_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WireError> {
        let (b, mut rest) = bytes.split_first_chunk::<ACK_BYTES>().ok_or(WireError::Malformed)?;
        let flags = b[12];
        let (words, tuples, verdicts) = (b[13] as usize, b[14] as usize, b[15] as usize);
        // E2: Malformed packets
        if flags & !(ACK_CREDIT_LIMITED | ACK_ECHO) != 0
            || words > SACK_WORDS_MAX
            || tuples > TUPLES_MAX
            || verdicts > VERDICTS_MAX
        {
            return Err(WireError::Malformed);
        }
        let mut take = |n: usize| {
            let (part, tail) = rest.split_at_checked(n).ok_or(WireError::Malformed)?;
            rest = tail;
            Ok(part)
        };
        let echo = if flags & ACK_ECHO != 0 {
            let echo = take(8)?;
            Some((u32_at(echo, 0), u32_at(echo, 4)))
        } else {
            None
        };
        let (sack, tuples, verdicts) = (take(words * 8)?, take(tuples * 8)?, take(verdicts * 5)?);
        if verdicts.chunks_exact(5).any(|v| v[4] == 0) {
            return Err(WireError::Malformed);
        }
        let head = AckHead {
            cumulative: u32_at(b, 0),
            received_bytes: u32_at(b, 4),
            credit_limit_bytes: u32_at(b, 8),
            credit_limited: flags & ACK_CREDIT_LIMITED != 0,
            senders: u16_at(b, 16),
            echo,
        };
        Ok((Self { head, sack, tuples, verdicts, ce: u16_at(b, 18) }, rest))
    }

    /// The SACK words in rising order of their PSNs.
    pub fn sack(&self) -> impl Iterator<Item = u64> + 'a {
        self.sack.chunks_exact(8).map(|w| u64_at(w, 0))
    }

    /// The tuples: for each observed packet its PSN, delay and mark.
    pub fn tuples(&self) -> impl Iterator<Item = Tuple> + 'a {
        let ce = self.ce;
        self.tuples.chunks_exact(8).enumerate().map(move |(i, t)| Tuple {
            psn: u32_at(t, 0),
            delay: u32_at(t, 4),
            ce: ce >> i & 1 == 1,
        })
    }

    /// The verdicts: each names a refused datagram.
    pub fn verdicts(&self) -> impl Iterator<Item = Verdict> + 'a {
        self.verdicts.chunks_exact(5).map(|v| Verdict { psn: u32_at(v, 0), status: v[4] })
    }
}
