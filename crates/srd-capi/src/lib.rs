//! SRD for programs in C, without libfabric: the implementation of `include/srd.h`.
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
//! The pointer by which a program holds an endpoint is a handle, which is looked up in a table.
//! So an invalid handle, or one of a closed endpoint, causes an error and not a crash. The same
//! holds for peers and keys, which also name their endpoint. Buffers cannot be checked: `srd.h`
//! states for each how long it belongs to the library.
//!
//! # What does not cross the border
//!
//! Panics: each function catches them and returns `SRD_EINTERNAL`; the endpoint cannot be used
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
