//! Protection of packets and of the handshake, without I/O. The crate is separate from the
//! transport, whose contexts use it, so that it can be audited alone. Only [`time`]
//! contains no cryptography: it has the type of an argument of most functions.
//!
//! No function here reads a clock, takes randomness from the operating system or uses a socket.
//! Time is an argument; randomness comes from a 32-byte seed through [`Drbg`]. So one seed gives
//! one transcript, and a simulation can replay an encrypted run. The price is a duty of the caller:
//! **a seed is used once.** Two endpoints, or two runs of one endpoint, that share a seed share
//! ephemeral keys and session salts. One state must not be used twice either: a copy of the state,
//! as in a restored or cloned virtual machine, seals other packets under the same numbers. If the
//! caller detects such a copy, it mixes new bytes in ([`Drbg::mix_in`]) and drops every session
//! key.
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
//! | forward secrecy if session state leaks | per generation | per generation | per generation |
//! | a recorded flight replayed to a fresh receiver fails | yes | yes | **no** |
//! | a flight redirected to another member fails | yes | yes | **no** |
//!
//! Not hidden: packet sizes and times, addresses, and header fields that are associated data
//! (context, packet number, key phase). As in every IK handshake, an attacker that later obtains a
//! private key can check whether the responder of a recorded handshake had this key.
//!
//! # From the first message to a sealed packet
//!
//! ```text
//!  HelloKey                       MAC: is it made for our key?
//!  HandshakeLoad, CookieJar       may this unknown sender cause a handshake?
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
//! The primitives are from other crates: AES-256-GCM, HMAC and HKDF from `ring`, the Noise state
//! machine from `snow`. The key schedule, the nonce rule and the windows are this project's own
//! code, on which an audit should concentrate.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`noise`], `resolver` | the handshake with static keys; the primitives that `snow` uses |
//! | [`job`] | session secrets from a key that all members of a job share |
//! | [`hello`], [`load`], [`cookie`] | checks and limits of the openings of strangers |
//! | `kdf`, [`schedule`] | HKDF, and the types that hold secrets; the keys of a session, and their rotation |
//! | [`aead`], [`replay`] | encryption of a packet; the window of received packet numbers |
//! | [`rng`], [`time`] | random numbers from a seed; time of the core |
//!
//! # What memory keeps
//!
//! Copies of secrets in this crate are overwritten when they are dropped, by a plain write that
//! [`core::hint::black_box`] protects from the optimiser. Without `unsafe` no stronger means
//! exists. `ring` and `snow` do not overwrite their expanded keys. Treat a core dump as a leak of
//! keys.
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
