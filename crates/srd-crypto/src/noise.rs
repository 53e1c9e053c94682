//! The handshake of nodes with static keys: `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s`. It takes one
//! round trip, and each message has a short greeting as its payload.
//!
//! ```text
//! message 1, initiator -> responder   e, es, s, ss   32 + 48 + (greeting + 16) bytes
//! message 2, responder -> initiator   e, ee, se, psk 32 + (greeting + 16) bytes
//!
//! prologue  "OpenSRD/2"
//! h         handshake hash after message 2;  k1, k2  the outputs of Split()
//! secret of the initiator's direction
//!     HKDF(ikm = k1, salt = h, info = "OpenSRD/2 noise initiator")
//! secret of the responder's direction
//!     HKDF(ikm = k2, salt = h, info = "OpenSRD/2 noise responder")
//! ```
//!
//! The pre-shared key is all zeros unless the two sides have one, as in WireGuard, so one pattern
//! serves both cases. Message 2 mixes the key in, so the responder may look it up by the public key
//! in message 1.
//!
//! # Guarantees for each side
//!
//! - The responder, after message 1: the sender once held the private key of `remote_public`, *or
//!   holds the responder's own private key* (key compromise impersonation), and the message may be
//!   a replay. So the responder may answer, but must not act: it delivers no datagram and closes no
//!   older session until a packet under the new secrets authenticates. The greeting of message 1
//!   has no forward secrecy against theft of the responder's private key.
//! - The initiator, after message 2: the responder holds the expected private key, and has answered
//!   in this handshake. The initiator may send.
//!
//! # Lost and repeated messages
//!
//! The initiator repeats message 1 with identical bytes. The responder keeps message 2 and repeats
//! it when it receives the same message 1 again ([`ephemeral`] identifies it), because a second
//! answer would start a second session under other keys. [`Initiator::finish`] may be called again
//! after a failure, so a forged message 2 does not end the handshake.
//!
//! # Cost and bound
//!
//! Most of the cost is scalar multiplications, about 45 us each on a current x86 core. A responder
//! needs two to reject a message 1 (one of them computes its own public key, which `snow` derives
//! each time), three to read a message 1, and three more to answer. An initiator needs six. So a
//! core can do about three thousand handshakes per second: see [`super::HandshakeLoad`]. Messages
//! outside of their length bounds are refused before any multiplication.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use snow::params::DHChoice;
use snow::{Builder, HandshakeState};

use super::kdf::{LABEL, SessionSecret, SessionSecrets, derive, wipe};
use super::resolver::{Resolver, SplitKeys, resolve_dh};
use super::rng::Drbg;

/// Largest length of a greeting in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64;
/// Bytes of message 1 beyond its greeting.
pub const MESSAGE1_OVERHEAD_BYTES: usize = 96;
/// Bytes of message 2 beyond its greeting.
pub const MESSAGE2_OVERHEAD_BYTES: usize = 48;

// S12: Noise handshake
const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
/// Position of the pre-shared key in the pattern: at the end of message 2.
const PSK_LOCATION: u8 = 2;
const PROLOGUE: &[u8] = b"OpenSRD/2";

/// Reason why a handshake message was not created or not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The greeting is longer than [`PAYLOAD_BYTES_MAX`].
    PayloadTooLong,
    /// The message is shorter or longer than any valid message of its kind.
    Length,
    /// The message does not authenticate: it is forged, damaged, or for another key.
    Unauthentic,
    /// The public key of the peer, or a public key in a message, is of small order. A secret that
    /// is computed with such a key protects nothing.
    WeakKey,
    /// The handshake has already finished.
    Finished,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PayloadTooLong => "the greeting is longer than 64 bytes",
            Self::Length => "the handshake message has an impossible length",
            Self::Unauthentic => "the handshake message does not authenticate",
            Self::WeakKey => "the public key is of small order",
            Self::Finished => "the handshake has finished already",
        })
    }
}

impl core::error::Error for HandshakeError {}

impl From<snow::Error> for HandshakeError {
    fn from(error: snow::Error) -> Self {
        match error {
            snow::Error::Dh => Self::WeakKey,
            snow::Error::Input => Self::Length,
            snow::Error::State(_) => Self::Finished,
            _ => Self::Unauthentic,
        }
    }
}

/// Returns a new private key.
pub fn generate_private(rng: &mut Drbg) -> [u8; 32] {
    rng.array()
}

/// Returns the public key of a private key.
pub fn public_key(private: &[u8; 32]) -> [u8; 32] {
    let mut dh = resolve_dh(&DHChoice::Curve25519).expect("snow is built with curve25519");
    dh.set(private);
    let mut public = [0; 32];
    public.copy_from_slice(dh.pubkey());
    public
}

/// Whether a public key is of small order (or zero). Every secret shared with such a key is zero,
/// so the key protects nothing. The check costs one scalar multiplication.
pub fn is_weak(public: &[u8; 32]) -> bool {
    let mut dh = resolve_dh(&DHChoice::Curve25519).expect("snow is built with curve25519");
    // Any scalar is suitable: clamping makes the scalar a multiple of eight, the order of the small
    // group.
    dh.set(&[1; 32]);
    dh.dh(public, &mut [0; 32]).is_err()
}

/// Returns the identity of a handshake, which is equal for a repeated message 1: the initiator's
/// ephemeral public key. `None` if the message is too short.
pub fn ephemeral(message1: &[u8]) -> Option<&[u8; 32]> {
    message1.first_chunk()
}

/// The initiator between message 1 and message 2.
pub struct Initiator(Handshake);

/// Result of the handshake for the initiator.
#[derive(Debug)]
pub struct Finished {
    /// The secrets of the session.
    pub secrets: SessionSecrets,
    /// Greeting of the responder.
    pub payload: Vec<u8>,
}

/// The responder after message 1 and before message 2. In this state the caller looks up
/// `remote_public`, and refuses unknown initiators before the more expensive part of the work.
pub struct Responder {
    handshake: Handshake,
    /// Public key of the initiator.
    pub remote_public: [u8; 32],
    /// Greeting of the initiator.
    pub payload: Vec<u8>,
}

/// Result of the handshake for the responder, after it has created its answer.
#[derive(Debug)]
pub struct Responded {
    /// Public key of the initiator.
    pub remote_public: [u8; 32],
    /// Greeting of the initiator.
    pub payload: Vec<u8>,
    /// The answer to send, and to send again if message 1 is repeated.
    pub message2: Vec<u8>,
    /// The secrets of the session. They are unconfirmed until a packet under them authenticates.
    pub secrets: SessionSecrets,
}

impl Initiator {
    /// Starts a handshake with the holder of `remote_public`. Also returns message 1.
    ///
    /// # Errors
    /// `PayloadTooLong` if the greeting is too long; `WeakKey` if `remote_public` is of small
    /// order.
    pub fn start(
        static_private: &[u8; 32],
        remote_public: &[u8; 32],
        preshared: &[u8; 32],
        payload: &[u8],
        rng: &mut Drbg,
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let mut handshake = Handshake::new(static_private, Some((remote_public, preshared)), rng);
        let message1 = handshake.write(payload, MESSAGE1_OVERHEAD_BYTES)?;
        Ok((Self(handshake), message1))
    }

    /// Reads message 2. After any error except `Finished`, the handshake still waits for message 2.
    ///
    /// # Errors
    /// A [`HandshakeError`], if `message2` is not the expected responder's answer to message 1 of
    /// this initiator.
    pub fn finish(&mut self, message2: &[u8]) -> Result<Finished, HandshakeError> {
        let payload = self.0.read(message2, MESSAGE2_OVERHEAD_BYTES)?;
        let (send, receive) = self.0.secrets();
        Ok(Finished { secrets: SessionSecrets { send, receive }, payload })
    }
}

impl Responder {
    /// Reads message 1.
    ///
    /// # Errors
    /// A [`HandshakeError`], if the message is not for the key `static_private`, or if its sender
    /// does not hold the private key of the public key in it.
    pub fn read(
        static_private: &[u8; 32],
        message1: &[u8],
        rng: &mut Drbg,
    ) -> Result<Self, HandshakeError> {
        check_length(message1, MESSAGE1_OVERHEAD_BYTES)?;
        let mut handshake = Handshake::new(static_private, None, rng);
        let payload = handshake.read(message1, MESSAGE1_OVERHEAD_BYTES)?;
        let remote_public = handshake
            .state
            .get_remote_static()
            .and_then(|key| key.first_chunk().copied())
            .expect("message 1 carries the initiator's static key");
        Ok(Self { handshake, remote_public, payload })
    }

    /// Writes message 2 with our greeting.
    ///
    /// # Errors
    /// `PayloadTooLong` if the greeting is too long; `WeakKey` if the initiator's ephemeral key is
    /// of small order.
    pub fn answer(
        mut self,
        preshared: &[u8; 32],
        payload: &[u8],
    ) -> Result<Responded, HandshakeError> {
        self.handshake.state.set_psk(PSK_LOCATION.into(), preshared)?;
        let message2 = self.handshake.write(payload, MESSAGE2_OVERHEAD_BYTES)?;
        let (receive, send) = self.handshake.secrets();
        Ok(Responded {
            remote_public: self.remote_public,
            payload: self.payload,
            message2,
            secrets: SessionSecrets { send, receive },
        })
    }
}

/// Reads message 1 and answers it without a check of the sender: [`Responder`] in one step.
///
/// # Errors
/// The errors of [`Responder::read`] and [`Responder::answer`].
pub fn respond(
    static_private: &[u8; 32],
    message1: &[u8],
    preshared: &[u8; 32],
    payload2: &[u8],
    rng: &mut Drbg,
) -> Result<Responded, HandshakeError> {
    Responder::read(static_private, message1, rng)?.answer(preshared, payload2)
}

/// Noise state of one side, and the last keys of its ciphers.
struct Handshake {
    state: HandshakeState,
    split: Arc<SplitKeys>,
}

impl Handshake {
    fn new(
        static_private: &[u8; 32],
        remote: Option<(&[u8; 32], &[u8; 32])>,
        rng: &mut Drbg,
    ) -> Self {
        let split = Arc::new(SplitKeys::default());
        let resolver = Resolver::new(rng.fork("noise"), split.clone());
        let state = build(resolver, PROLOGUE, static_private, remote)
            .expect("pattern, keys and primitives are complete and of the right lengths");
        Self { state, split }
    }

    fn write(&mut self, payload: &[u8], overhead: usize) -> Result<Vec<u8>, HandshakeError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(HandshakeError::PayloadTooLong);
        }
        let mut message = vec![0; overhead + payload.len()];
        let written = self.state.write_message(payload, &mut message)?;
        debug_assert_eq!(written, message.len());
        Ok(message)
    }

    fn read(&mut self, message: &[u8], overhead: usize) -> Result<Vec<u8>, HandshakeError> {
        check_length(message, overhead)?;
        let mut payload = vec![0; message.len() - overhead];
        let read = self.state.read_message(message, &mut payload)?;
        debug_assert_eq!(read, payload.len());
        Ok(payload)
    }

    /// Returns the secrets of the initiator's and of the responder's direction.
    fn secrets(&mut self) -> (SessionSecret, SessionSecret) {
        assert!(self.state.is_handshake_finished(), "called after message 2 only");
        let (mut initiator, mut responder) = self.split.take();
        // S13: Secrets of a session
        let hash = self.state.get_handshake_hash();
        let secret = |key: &mut [u8; 32], role: &[u8]| {
            let secret = derive(hash, key, &[LABEL, b"noise ", role]);
            wipe(key);
            SessionSecret::from_bytes(secret)
        };
        (secret(&mut initiator, b"initiator"), secret(&mut responder, b"responder"))
    }
}

/// Returns the initial state of a handshake. The initiator passes the responder's public key and
/// the pre-shared key as `remote`.
fn build(
    resolver: Resolver,
    prologue: &[u8],
    static_private: &[u8; 32],
    remote: Option<(&[u8; 32], &[u8; 32])>,
) -> Result<HandshakeState, snow::Error> {
    let builder = Builder::with_resolver(PATTERN.parse()?, Box::new(resolver))
        .local_private_key(static_private)?
        .prologue(prologue)?;
    match remote {
        Some((key, preshared)) => {
            builder.remote_public_key(key)?.psk(PSK_LOCATION, preshared)?.build_initiator()
        }
        None => builder.build_responder(),
    }
}

fn check_length(message: &[u8], overhead: usize) -> Result<(), HandshakeError> {
    // S12: Noise handshake
    if (overhead..=overhead + PAYLOAD_BYTES_MAX).contains(&message.len()) {
        Ok(())
    } else {
        Err(HandshakeError::Length)
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator(..)")
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("remote_public", &self.remote_public)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
