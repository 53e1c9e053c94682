//! SRD for programs in C, without libfabric: what stands behind `include/srd.h`.
//!
//! | module | what |
//! |---|---|
//! | `entry` | the functions of `srd.h`: pointers end here |
//! | `options`, `address`, `event`, `status` | what crosses the border: structures, texts, numbers |
//! | `table` | open endpoints by the handle that the program holds for them |
//! | `endpoint`, `transfer`, `sharing` | one endpoint and its operations |
//! | `sink`, `queue` | events, and how a program waits for them |
//! | `peers`, `shares` | what the program's handles for peers and memory mean |
//!
//! # Handles that can be checked
//!
//! A program holds an endpoint as a pointer that leads nowhere: it is looked up. So a handle for an
//! endpoint that was closed, or never was one, is an error and not a crash; the same holds for
//! peers and keys, which also name the endpoint that they belong to. What cannot be checked are
//! buffers: `srd.h` says for each how long it belongs to the library.
//!
//! # What does not cross the border
//!
//! Panics: each function catches them, says `SRD_EINTERNAL`, and the endpoint is over.

pub mod address;
pub mod endpoint;
#[allow(unsafe_code, reason = "C calls here")]
pub mod entry;
pub mod event;
pub mod options;
pub mod peers;
pub mod queue;
pub mod shares;
pub mod sharing;
pub mod sink;
pub mod status;
pub mod table;
pub mod transfer;

pub use status::{Error, Outcome, Status};
