//! The Messaging Layer in an application: over real sockets, with the memory and the threads of the
//! application. The libfabric provider and the other interfaces for C are built on it.
//!
//! A [`Host`] is one endpoint: sockets, transport, Messaging Layer and the registrations of the
//! application's memory, behind one lock. Completions go to the caller's [`Sink`].
//!
//! # Threads
//!
//! The application's thread does the work during its calls: a send leaves within the call, and
//! [`Handle::poll`] does one round without waiting. This is fast, because no work passes from one
//! thread to another. In addition each host has a **progress thread**, which works while the
//! application computes: it sends acknowledgements, retransmits, and serves peers' writes and
//! reads. Once per millisecond this thread checks whether the application has polled. As long as
//! the application polls, the thread does nothing; otherwise it waits at the sockets. An
//! application that waits for a descriptor or a condition passes the work to the progress thread
//! immediately ([`Handle::hand_over`]).
//!
//! # The application's memory
//!
//! See [`memory`]: sent data is not copied, so the buffers of an operation belong to the host until
//! the end of the operation was reported to the sink, or the host was closed.
//!
//! # Closing
//!
//! [`Host::close`] continues until all sent data is acknowledged and every answer is sent, for at
//! most [`LINGER`]. Then it sends the acknowledgements that are due, ends the thread and drops
//! everything: afterwards the application's memory is neither read nor written.
//!
//! # After `fork`
//!
//! The child has neither the progress thread nor a right to the sockets, which the parent continues
//! to use. Each call in the child fails with [`CallError::Forked`]; a close in the child releases
//! nothing. The parent is not affected.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `host`, `core`, `shared` | opening, calls and closing; one round of work; the core behind its lock |
//! | `progress`, `backoff`, `ready` | the thread that makes progress; when a polling thread yields; a descriptor for `poll` |
//! | [`memory`] | the application's memory, and the reasons why its use is sound |
//! | `options` | settings |

mod backoff;
mod core;
mod host;
#[allow(unsafe_code, reason = "the application's memory, by address")]
pub mod memory;
mod options;
mod progress;
mod ready;
mod shared;

pub use crate::core::Sink;
pub use host::{Handle, Host, HostProperties, LINGER};
pub use memory::{RegionNumber, Span, UserMemory};
pub use options::{KEY_FORM, MAKE_KEY, Options, read_key};
pub use ready::ReadyFd;
pub use shared::{Call, CallError};
pub use srd_net::{KeyFileError, read_key_file};
pub use srd_net::{OfProcess, Process};
