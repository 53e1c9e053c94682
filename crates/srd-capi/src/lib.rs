//! SRD for programs in C, without libfabric: the implementation of `include/srd.h`. Its endpoints
//! are those of [`srd_host`], the Messaging Layer over sockets.
//!
//! | module | content |
//! |---|---|
//! | `entry` | functions of `srd.h`: the only code with raw pointers |
//! | `options`, `address`, `event`, `status` | structures, texts and numbers of the C interface |
//! | `table` | open endpoints by the handles that the program holds |
//! | `endpoint`, `transfer`, `sharing` | one endpoint and its operations |
//! | `sink`, `queue` | events, and how a program waits for them |
//! | `peers`, `shares` | the program's handles for peers, and keys of shared memory |
//!
//! # Handles that can be checked
//!
//! The pointer by which a program holds an endpoint is a handle, which is looked up in a table. So
//! an invalid handle, or a handle of a closed endpoint, causes an error and not a crash. Handles of
//! peers and keys are checked, too; they also contain their endpoint. Buffers cannot be checked:
//! `srd.h` states for each buffer how long it belongs to the library.
//!
//! # Panics do not reach the program
//!
//! Each function catches panics and returns `SRD_EINTERNAL`. The endpoint cannot be used
//! afterwards.

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
