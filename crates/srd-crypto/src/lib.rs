//! Protection of packets and of the handshake: pure pieces that a context of the transport is built
//! from, apart from it so that they can be audited alone. The only thing here that is no
//! cryptography is [`time`], which is an argument of everything.
//!
//! Nothing here reads a clock, takes randomness from an operating system or touches a socket.
//! Time is an argument; randomness comes from a 32-byte seed through [`Drbg`]. One seed therefore
//! gives one transcript, which is what lets a simulation replay an encrypted run. The price is a
//! duty of the caller: **a seed is used once.** Two endpoints, or two runs of one endpoint, that
//! share a seed share ephemeral keys and session salts. Nor may one state be used twice: a copy
//! of it, as a restored or cloned virtual machine has, seals other packets under the same
//! numbers. The caller that learns of a copy mixes fresh bytes in ([`Drbg::mix_in`]) and gives up
//! every session key.
//!
//! # What is protected against whom
//!
//! The adversary reads, drops, delays, reorders, duplicates, rewrites and injects packets. It
//! cannot read the memory of an endpoint while the endpoint runs.
//!
//! | property | static keys ([`noise`]) | job key ([`job`]), bound | job key, early |
//! |---|---|---|---|
//! | confidentiality and integrity of packets | yes | yes | yes |
//! | peer is one node, not any member | yes | no: any holder of the job key | no |
//! | forward secrecy against theft of the long-term key | yes | **no** | **no** |
//! | forward secrecy against theft of a session's state | per generation | per generation | per generation |
//! | a recorded flight replayed to a fresh receiver fails | yes | yes | **no** |
//! | a flight redirected to another member fails | yes | yes | **no** |
//!
//! Not hidden: packet sizes and times, addresses, header fields that travel as associated
//! data (context, packet number, key phase), and, as in every IK handshake, whether a guessed
//! public key is the responder's, given its private key later.
//!
//! # How the pieces meet
//!
//! ```text
//!  HelloKey                       does it know whom it calls?
//!  HandshakeLoad, CookieJar       may this stranger cost us a handshake?
//!            |
//!  noise::Initiator / respond    or   job::session_secret
//!            |                              |
//!            +----> SessionSecrets <--------+        one 32-byte secret per direction
//!                        |
//!                   SessionKeys                      ratchet: key, salt, next secret
//!                        |
//!                 SealKey / OpenKey                  AES-256-GCM, nonce = salt || number
//!                        |
//!                  ReplayWindow                      control numbers; data numbers have the
//!                                                    receive window of the context itself
//! ```
//!
//! Primitives are not ours: AES-256-GCM, HMAC and HKDF are `ring`'s, the Noise state machine
//! is `snow`'s. Ours are the schedule, the nonce rule and the windows, and those are where an
//! audit should look.
//!
//! # What memory keeps
//!
//! Our own copies of secrets are overwritten when dropped, by a plain write that
//! [`core::hint::black_box`] protects from the optimiser; without `unsafe` there is no stronger
//! means. `ring` and `snow` do not wipe their expanded keys. Treat a core dump as a key leak.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod aead;
pub mod cookie;
pub mod hello;
pub mod job;
mod kdf;
pub mod load;
pub mod noise;
pub mod replay;
mod resolver;
pub mod rng;
pub mod schedule;
pub mod time;

pub use aead::{FloorLimits, OpenError, OpenKey, SealKey, Space, TAG_BYTES};
pub use cookie::{COOKIE_BYTES, CookieJar};
pub use hello::{HELLO_MAC_BYTES, HelloKey};
pub use kdf::{SessionSecret, SessionSecrets};
pub use load::{Admission, HandshakeLoad, Proof};
pub use noise::{HandshakeError, Initiator, generate_private, is_weak, public_key, respond};
pub use replay::ReplayWindow;
pub use rng::Drbg;
pub use schedule::{RotateError, RotationLimits, SealError, SessionKeys};

#[cfg(test)]
mod testing;
