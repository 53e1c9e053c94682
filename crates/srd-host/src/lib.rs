//! The Messaging Layer in an application: over real sockets, in its own memory and its own
//! threads. The libfabric provider and the other interfaces for C are built on it.
//!
//! A [`Host`] is one endpoint: sockets, transport, Messaging Layer and the registrations of the
//! application's memory, behind one lock. Completions go to the caller's [`Sink`].
//!
//! # Threads
//!
//! The application's own thread, whenever it calls: a send leaves within the call, and
//! [`Handle::poll`] does one round without waiting. That is fast, for nothing is handed from one
//! thread to another. Beside it each host has a **progress thread**, which works while the
//! application computes: it sends acknowledgements, retransmits, and serves peers' writes and
//! reads. It looks once a millisecond whether the application has polled; as long as it has, the
//! thread does nothing. When the application stays away, the thread waits at the sockets. An
//! application that waits for a descriptor or a condition leaves the work to the progress thread
//! at once ([`Handle::hand_over`]).
//!
//! # The application's memory
//!
//! See [`memory`]: sent data is not copied, so an operation's buffers belong to the host until
//! its end was reported to the sink, or the host was closed.
//!
//! # Closing
//!
//! [`Host::close`] goes on until all sent data is acknowledged and every answer is sent, but at
//! most [`LINGER`]. Then it sends the acknowledgements that are due, ends the thread and drops
//! everything: afterwards the application's memory is neither read nor written.
//!
//! # After `fork`
//!
//! The child has neither the progress thread nor a right to the sockets, which the parent goes on
//! using. Each call in the child fails with [`CallError::Forked`]; closing there only forgets.
//! The parent is not disturbed.

mod backoff;
mod core;
#[allow(unsafe_code, reason = "a handler that is called in the child of a fork")]
mod fork;
mod host;
#[allow(unsafe_code, reason = "the application's memory, by address")]
pub mod memory;
mod options;
mod progress;
mod ready;
mod shared;

pub use crate::core::Sink;
pub use fork::Process;
pub use host::{Handle, Host, HostProperties, LINGER};
pub use memory::{RegionNumber, Span, UserMemory};
pub use options::{KEY_FORM, MAKE_KEY, Options, read_key};
pub use ready::ReadyFd;
pub use shared::{Call, CallError};
pub use srd_net::{KeyFileError, read_key_file};
