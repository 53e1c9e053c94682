//! The key schedule of a session: one ratchet per direction, which is rotated during traffic.
//!
//! ```text
//! secret 0 --next--> secret 1 --next--> secret 2 ...        HKDF-Expand, 32 bytes
//!    |                  |                  |
//!   key                key                key               HKDF-Expand, 32 + 4 bytes:
//!    v                  v                  v                AES-256 key || nonce salt
//! phase 0            phase 1            phase 2  ...        phase = generation mod 256
//! ```
//!
//! The sender writes its current phase into the header, where it is authenticated with the other
//! fields. The receiver holds the current generation. It derives the next generation when a packet
//! first claims it, and makes it current when such a packet authenticates. The previous generation
//! is kept for a grace time, so that reordered packets around the rotation still open. At most
//! three generations can be opened at any time.
//!
//! Either side may *initiate* a rotation of its own direction. The other side *follows* with its
//! direction when it receives the new phase. Following also replaces the key of a side that sends
//! only acknowledgements, which are never acknowledged themselves.
//!
//! # Invariants
//!
//! 1. A key seals each (space, number) at most once: the numbers of a space have to rise strictly
//!    for the whole session, across rotations. [`SessionKeys::seal`] refuses any other number.
//! 2. A sender is at most one generation ahead of the newest generation that its receiver has
//!    authenticated. Otherwise a receiver that gets no packets could fall behind forever. So a side
//!    initiates only if (a) the peer has acknowledged a data packet of the current generation and
//!    (b) the peer's direction has reached this generation too. Following needs no condition. If
//!    the peer entered the new phase by initiating, then (b) was true for it, so it had
//!    authenticated our current phase. If the peer entered it by following us, we are already in
//!    the new phase.
//! 3. A secret is dropped as soon as its successor exists. State stolen in generation g does not
//!    open generations before g - 1, and does not open g - 1 after the grace time.
//! 4. A packet that does not authenticate changes only a counter. There is one exception: the first
//!    packet that claims the next phase causes early derivation of its key, once per generation.
//!
//! Rotation keeps the limits of the cipher and gives forward secrecy. It does not recover from
//! theft: an attacker that has stolen one generation's secret can compute all later secrets. With
//! static keys, a new handshake recovers.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::aead::{FloorLimits, NUMBER_MAX, OpenError, OpenKey, SealKey, Space};
use super::kdf::{LABEL, SessionSecret, SessionSecrets, expand, wipe};
use crate::time::{Duration, Instant};

/// Limits after which a key is replaced, and the time for which the previous key still opens
/// packets.
#[derive(Clone, Copy, Debug)]
pub struct RotationLimits {
    /// Number of packets after which a key is replaced. [`FloorLimits`] may require it earlier.
    pub packets_max: u64,
    /// Time of use after which a key is replaced.
    pub lifetime: Duration,
    /// Time for which the receiver keeps the previous generation: a few retransmission timeouts.
    pub grace: Duration,
}

/// Reason why a packet was not sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SealError {
    /// The number does not rise, or is above [`NUMBER_MAX`]. Sealing would repeat a nonce.
    NumberReused,
    /// The key has reached its limit, and cannot be replaced because the peer has not confirmed it.
    /// The context cannot send any more: it needs a new session.
    Exhausted,
}

/// Reason why the sending key was not replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RotateError {
    /// The peer has not yet acknowledged a data packet of the current generation, or has not itself
    /// reached this generation.
    Unconfirmed,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NumberReused => "the packet number does not rise",
            Self::Exhausted => "the key is used up and its successor is not confirmed",
        })
    }
}

impl fmt::Display for RotateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer has not confirmed the current key")
    }
}

impl core::error::Error for SealError {}
impl core::error::Error for RotateError {}

/// A ratchet of one direction: it returns the keys of one generation after another, and stores only
/// the next secret.
struct Ratchet {
    next: SessionSecret,
}

impl Ratchet {
    /// Returns key and salt of the next generation, and replaces the secret by its successor.
    fn step(&mut self) -> ([u8; 32], [u8; 4]) {
        // S7: Key schedule
        let mut material: [u8; 36] = expand(self.next.bytes(), &[LABEL, b"key"]);
        let (mut key, mut salt) = ([0; 32], [0; 4]);
        key.copy_from_slice(&material[..32]);
        salt.copy_from_slice(&material[32..]);
        wipe(&mut material);
        self.next = SessionSecret::from_bytes(expand(self.next.bytes(), &[LABEL, b"next"]));
        (key, salt)
    }

    fn seal_key(&mut self) -> SealKey {
        let (mut key, salt) = self.step();
        let seal = SealKey::new(&key, salt);
        wipe(&mut key);
        seal
    }

    fn open_key(&mut self) -> OpenKey {
        let (mut key, salt) = self.step();
        let open = OpenKey::new(&key, salt);
        wipe(&mut key);
        open
    }
}

struct Sending {
    ratchet: Ratchet,
    key: SealKey,
    phase: u8,
    since: Instant,
    floor: FloorLimits,
    /// For each number space, the smallest packet number that may still be used.
    number_min: [u64; 2],
    /// First data number that was sealed in this generation.
    data_first: Option<u64>,
    /// Whether the peer has acknowledged a data packet of this generation.
    confirmed: bool,
}

struct Receiving {
    ratchet: Ratchet,
    current: OpenKey,
    phase: u8,
    floor: FloorLimits,
    /// Key of the next generation, derived when a packet first claims it.
    next: Option<Box<OpenKey>>,
    /// Key of the previous generation, and the time when it is dropped.
    previous: Option<(Box<OpenKey>, Instant)>,
}

/// The keys of one session for both directions, held by one side.
pub struct SessionKeys {
    limits: RotationLimits,
    sending: Sending,
    receiving: Receiving,
}

impl SessionKeys {
    /// Returns the keys of generation 0 for both directions.
    pub fn new(secrets: SessionSecrets, limits: RotationLimits, now: Instant) -> Self {
        let mut send = Ratchet { next: secrets.send };
        let mut receive = Ratchet { next: secrets.receive };
        let sending = Sending {
            key: send.seal_key(),
            ratchet: send,
            phase: 0,
            since: now,
            floor: FloorLimits::default(),
            number_min: [0; 2],
            data_first: None,
            confirmed: false,
        };
        let receiving = Receiving {
            current: receive.open_key(),
            ratchet: receive,
            phase: 0,
            floor: FloorLimits::default(),
            next: None,
            previous: None,
        };
        Self { limits, sending, receiving }
    }

    /// Returns the phase to write into the next header, after a rotation if one is due and
    /// possible. Call it before writing a header, and open no packet between this call and the
    /// seal: an opened packet may make this side follow into another phase, and the header would
    /// have the wrong phase.
    pub fn prepare_send(&mut self, now: Instant) -> u8 {
        if self.rotation_due(now) {
            // If the rotation is not confirmed yet, the phase stays, and the next packet tries
            // again.
            let _ = self.rotate_send(now);
        }
        self.sending.phase
    }

    /// Returns the phase of packets that are sealed now.
    pub const fn send_phase(&self) -> u8 {
        self.sending.phase
    }

    /// Returns the newest phase of the peer in which a packet has authenticated.
    pub const fn receive_phase(&self) -> u8 {
        self.receiving.phase
    }

    /// Whether the sending key should be replaced, because it has reached a limit, or because half
    /// of the peer's key is used. A peer without data to send replaces its key only after this
    /// side. The other half of the peer's key is left for lost packets, which this side cannot
    /// count.
    pub fn rotation_due(&self, now: Instant) -> bool {
        // S8: Life of a key
        let s = &self.sending;
        s.floor.packets() >= self.limits.packets_max
            || s.floor.rotation_due()
            || self.receiving.floor.half_used()
            || (s.floor.packets() > 0 && now.since(s.since) >= self.limits.lifetime)
    }

    /// Replaces the sending key by its successor. Returns the new phase.
    ///
    /// # Errors
    /// [`RotateError::Unconfirmed`], if the rotation would break invariant 2.
    pub fn rotate_send(&mut self, now: Instant) -> Result<u8, RotateError> {
        // S9: Start of a rotation
        if !self.sending.confirmed || self.receiving.phase != self.sending.phase {
            return Err(RotateError::Unconfirmed);
        }
        self.sending.advance(now);
        Ok(self.sending.phase)
    }

    /// Processes the peer's acknowledgement of data packet `number`, from a packet that
    /// authenticated.
    pub fn on_acknowledged(&mut self, number: u64) {
        let s = &mut self.sending;
        if s.data_first.is_some_and(|first| number >= first && number < s.number_min[0]) {
            s.confirmed = true;
        }
    }

    /// Seals `body[body_start..]` under the current phase and appends the tag.
    ///
    /// # Errors
    /// A [`SealError`], if the packet must not be sealed; then the body is unchanged.
    ///
    /// # Panics
    /// If `body_start` is beyond the end of `body`.
    pub fn seal(
        &mut self,
        space: Space,
        number: u64,
        aad: &[u8],
        body: &mut Vec<u8>,
        body_start: usize,
    ) -> Result<(), SealError> {
        self.sending.claim(space, number, body[body_start..].len())?;
        self.sending.key.seal(space, number, aad, body, body_start);
        Ok(())
    }

    /// Seals the last packet of a batch as [`SealKey::seal_packet`] does. The packet's header is
    /// the associated data.
    ///
    /// # Errors
    /// A [`SealError`], if the packet must not be sealed; then the batch is unchanged.
    ///
    /// # Panics
    /// If the offsets do not satisfy `header_start <= body_start <= batch.len()`.
    pub fn seal_packet(
        &mut self,
        space: Space,
        number: u64,
        batch: &mut Vec<u8>,
        header_start: usize,
        body_start: usize,
    ) -> Result<(), SealError> {
        self.sending.claim(space, number, batch[body_start..].len())?;
        self.sending.key.seal_packet(space, number, batch, header_start, body_start);
        Ok(())
    }

    /// Opens, in place, a packet whose header claims `phase`. If `phase` is the next phase and the
    /// packet authenticates, the receiving side changes to it and the sending side follows.
    ///
    /// # Errors
    /// An [`OpenError`], if the packet does not open. Count the packet and drop it. The caller
    /// checks for replay: a cheap check before this call, and the final check after success.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        phase: u8,
        space: Space,
        number: u64,
        aad: &[u8],
        body_and_tag: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        self.expire(now);
        let grace = self.limits.grace;
        let r = &mut self.receiving;
        if r.floor.open_refused() {
            return Err(OpenError::Exhausted);
        }
        let ahead = phase.wrapping_sub(r.phase);
        // S11: Phases that are tried
        let key = match ahead {
            0 => &r.current,
            1 => r.next.get_or_insert_with(|| Box::new(r.ratchet.open_key())),
            u8::MAX => r.previous.as_ref().map(|(key, _)| &**key).ok_or(OpenError::UnknownPhase)?,
            _ => return Err(OpenError::UnknownPhase),
        };
        match key.open(space, number, aad, body_and_tag) {
            Ok(body) => {
                if ahead == 1 {
                    // S10: End of a rotation
                    r.advance(now + grace);
                    if r.phase == self.sending.phase.wrapping_add(1) {
                        self.sending.advance(now);
                    }
                }
                if ahead <= 1 {
                    r.floor.on_packet(body.len());
                }
                Ok(body)
            }
            Err(error) => {
                // S5. A forgery changes this counter and nothing else.
                if error == OpenError::Unauthentic {
                    r.floor.on_forgery();
                }
                Err(error)
            }
        }
    }

    /// Uses up the sending key, except for `packets` packets of `body_bytes`. For tests.
    #[doc(hidden)]
    pub fn leave_seals_for(&mut self, packets: u64, body_bytes: u64) {
        let left = packets * (body_bytes.div_ceil(16) + 1);
        let used = (FloorLimits::BLOCKS_MAX - left - 1) * 16;
        self.sending.floor = FloorLimits::default();
        self.sending.floor.on_packet(usize::try_from(used).unwrap_or(usize::MAX));
        self.sending.confirmed = false;
    }

    /// Drops the previous generation if its grace time has ended. [`SessionKeys::open`] also does
    /// this; a timer that calls this function limits the time for which an idle context keeps the
    /// generation.
    pub fn expire(&mut self, now: Instant) {
        let previous = &mut self.receiving.previous;
        if previous.as_ref().is_some_and(|&(_, until)| now >= until) {
            *previous = None;
        }
    }

    /// Returns the time when [`SessionKeys::expire`] has to drop the previous generation; `None` if
    /// no previous generation is held.
    pub fn expires_at(&self) -> Option<Instant> {
        self.receiving.previous.as_ref().map(|&(_, until)| until)
    }
}

impl Sending {
    /// Replaces the sending key by the key of the next generation.
    fn advance(&mut self, now: Instant) {
        self.key = self.ratchet.seal_key();
        self.phase = self.phase.wrapping_add(1);
        self.since = now;
        self.floor = FloorLimits::default();
        self.data_first = None;
        self.confirmed = false;
    }

    /// Checks that the current key may seal the packet, and records the packet.
    fn claim(&mut self, space: Space, number: u64, body_bytes: usize) -> Result<(), SealError> {
        let number_min = &mut self.number_min[space as usize];
        // S4: Numbers rise
        if number < *number_min || number > NUMBER_MAX {
            return Err(SealError::NumberReused);
        }
        // S8: Life of a key
        if self.floor.seal_refused(body_bytes) {
            return Err(SealError::Exhausted);
        }
        *number_min = number + 1;
        self.floor.on_packet(body_bytes);
        if space == Space::Data && self.data_first.is_none() {
            self.data_first = Some(number);
        }
        Ok(())
    }
}

impl Receiving {
    /// Makes the key of the next generation current, after one of its packets has authenticated.
    fn advance(&mut self, previous_until: Instant) {
        let Some(next) = self.next.take() else {
            return;
        };
        let previous = core::mem::replace(&mut self.current, *next);
        self.previous = Some((Box::new(previous), previous_until));
        self.phase = self.phase.wrapping_add(1);
        self.floor = FloorLimits::default();
    }
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys")
            .field("send_phase", &self.sending.phase)
            .field("receive_phase", &self.receiving.phase)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
