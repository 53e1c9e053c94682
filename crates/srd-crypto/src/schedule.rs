//! The key schedule of a session: a ratchet per direction, rotated in flight.
//!
//! ```text
//! secret 0 --next--> secret 1 --next--> secret 2 ...        HKDF-Expand, 32 bytes
//!    |                  |                  |
//!   key                key                key               HKDF-Expand, 32 + 4 bytes:
//!    v                  v                  v                AES-256 key || nonce salt
//! phase 0            phase 1            phase 2  ...        phase = generation mod 256
//! ```
//!
//! The sender writes its current phase into the header, where it is authenticated with the
//! rest. The receiver holds the current generation, makes the next one when a packet first
//! claims it, and moves on when such a packet authenticates; the previous one stays for a grace
//! time, so that packets overtaken by the rotation still open. At no time do more than three
//! generations open.
//!
//! Either side may *initiate* a rotation of its own direction; the other *follows* with its
//! direction when it sees the new phase. Following is what replaces the key of a side that
//! sends nothing but acknowledgements, which are never acknowledged themselves.
//!
//! # Invariants
//!
//! 1. A key seals each (space, number) at most once: numbers of a space must rise strictly for
//!    the whole session, across rotations, and [`SessionKeys::seal`] refuses any that does not.
//! 2. A sender is at most one generation ahead of what its receiver has authenticated; else it
//!    could outrun, for good, a receiver to which nothing gets through. So it initiates only when
//!    (a) the peer has acknowledged a data packet of the current generation and (b) the peer's
//!    direction has reached that generation too. Following needs no condition. If the peer
//!    entered the new phase by initiating, (b) held there, so it had authenticated our current
//!    phase; if it followed us, we are in the new phase already.
//! 3. A secret is dropped as soon as its successor exists: state stolen in generation g does
//!    not open generations before g - 1, nor g - 1 after the grace time.
//! 4. A packet that does not authenticate changes nothing but a counter, save that the first
//!    one to claim the next phase makes us derive that key early: once per generation.
//!
//! Rotation is for limits of the cipher and for forward secrecy. It does not heal: who steals a
//! generation's secret can follow the ratchet forward. A new handshake heals (static keys).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::aead::{FloorLimits, NUMBER_MAX, OpenError, OpenKey, SealKey, Space};
use super::kdf::{LABEL, SessionSecret, SessionSecrets, expand, wipe};
use crate::time::{Duration, Instant};

/// Limits after which a key is replaced, and the time for which its predecessor opens.
#[derive(Clone, Copy, Debug)]
pub struct RotationLimits {
    /// Rotate after this number of packets. [`FloorLimits`] may require it earlier.
    pub packets_max: u64,
    /// Rotate after so long in use.
    pub lifetime: Duration,
    /// Time for which the receiver keeps the previous generation: a few retransmission timeouts.
    pub grace: Duration,
}

/// Reason why a packet was not sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SealError {
    /// The number does not rise, or is above [`NUMBER_MAX`]: sealing would repeat a nonce.
    NumberReused,
    /// The key has sealed all it may, and the peer has not confirmed it, so that it cannot be
    /// replaced. The context is as good as down: it needs a new session.
    Exhausted,
}

/// Reason why the sending key was not replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RotateError {
    /// The peer has not yet acknowledged a data packet of the current generation, or has not
    /// itself moved to it.
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

/// The ratchet: hands out one generation's key after another and keeps only the next secret.
struct Ratchet {
    next: SessionSecret,
}

impl Ratchet {
    /// Key and salt of the next generation; the secret moves on.
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
    /// The least number that each space may still use.
    number_min: [u64; 2],
    /// The first data number sealed in this generation.
    data_first: Option<u64>,
    /// Whether the peer has acknowledged a data packet of this generation.
    confirmed: bool,
}

struct Receiving {
    ratchet: Ratchet,
    current: OpenKey,
    phase: u8,
    floor: FloorLimits,
    /// The next generation, made when a packet first claims it.
    next: Option<Box<OpenKey>>,
    /// The previous generation and when it goes.
    previous: Option<(Box<OpenKey>, Instant)>,
}

/// The keys of one session, both directions, as one side holds them.
pub struct SessionKeys {
    limits: RotationLimits,
    sending: Sending,
    receiving: Receiving,
}

impl SessionKeys {
    /// Generation 0 of both directions.
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

    /// The phase to write into the next header, after rotating if that is due and possible.
    /// Call it before writing a header, and open nothing between it and the seal: an opened
    /// packet may make us follow into another phase, and the header would name the wrong one.
    pub fn prepare_send(&mut self, now: Instant) -> u8 {
        if self.rotation_due(now) {
            // Unconfirmed: stay, and try again with the next packet.
            let _ = self.rotate_send(now);
        }
        self.sending.phase
    }

    /// The phase of packets sealed now.
    pub const fn send_phase(&self) -> u8 {
        self.sending.phase
    }

    /// The newest phase of the peer that has authenticated.
    pub const fn receive_phase(&self) -> u8 {
        self.receiving.phase
    }

    /// Whether a key has reached a limit: ours, or the peer's, which only follows us if it has
    /// no data to send. Half of the peer's limit allows for as many packets lost as received.
    pub fn rotation_due(&self, now: Instant) -> bool {
        // S8: Life of a key
        let s = &self.sending;
        s.floor.packets() >= self.limits.packets_max
            || s.floor.rotation_due()
            || self.receiving.floor.half_used()
            || (s.floor.packets() > 0 && now.since(s.since) >= self.limits.lifetime)
    }

    /// Replaces the sending key by its successor and returns the new phase.
    ///
    /// # Errors
    /// [`RotateError::Unconfirmed`] as long as invariant 2 would break.
    pub fn rotate_send(&mut self, now: Instant) -> Result<u8, RotateError> {
        // S9: Start of a rotation
        if !self.sending.confirmed || self.receiving.phase != self.sending.phase {
            return Err(RotateError::Unconfirmed);
        }
        self.sending.advance(now);
        Ok(self.sending.phase)
    }

    /// Handles the peer's acknowledgement of data packet `number`, in a packet that
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
    /// A [`SealError`]; the body is untouched.
    ///
    /// # Panics
    /// If `body_start` is beyond the end.
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

    /// As [`SealKey::seal_packet`]: the last packet of a batch, its header being the
    /// associated data.
    ///
    /// # Errors
    /// A [`SealError`]; the batch is untouched.
    ///
    /// # Panics
    /// If the offsets are not `header_start <= body_start <= batch.len()`.
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

    /// Opens in place a packet whose header claims `phase`. If that is the next phase and the
    /// packet authenticates, the receiving side moves on to it and the sending side follows.
    ///
    /// # Errors
    /// An [`OpenError`]; count it and drop the packet. The caller checks for replay: cheaply
    /// before, and for good only after success.
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

    /// Uses the sending key up, except for `packets` of `body_bytes`.
    #[doc(hidden)]
    pub fn leave_seals_for(&mut self, packets: u64, body_bytes: u64) {
        let left = packets * (body_bytes.div_ceil(16) + 1);
        let used = (FloorLimits::BLOCKS_MAX - left - 1) * 16;
        self.sending.floor = FloorLimits::default();
        self.sending.floor.on_packet(usize::try_from(used).unwrap_or(usize::MAX));
        self.sending.confirmed = false;
    }

    /// Drops the previous generation if its grace time is over. [`SessionKeys::open`] does so
    /// too; a timer that calls this bounds how long an idle context keeps it.
    pub fn expire(&mut self, now: Instant) {
        let previous = &mut self.receiving.previous;
        if previous.as_ref().is_some_and(|&(_, until)| now >= until) {
            *previous = None;
        }
    }

    /// Time when [`SessionKeys::expire`] has something to do, if ever.
    pub fn expires_at(&self) -> Option<Instant> {
        self.receiving.previous.as_ref().map(|&(_, until)| until)
    }
}

impl Sending {
    /// Makes the next generation current.
    fn advance(&mut self, now: Instant) {
        self.key = self.ratchet.seal_key();
        self.phase = self.phase.wrapping_add(1);
        self.since = now;
        self.floor = FloorLimits::default();
        self.data_first = None;
        self.confirmed = false;
    }

    /// Checks that sealing keeps the invariants, and accounts for it.
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
    /// Makes the next generation current: one of its packets has authenticated.
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
