//! SRD for libfabric: the provider `libsrd-fi.so`.
//!
//! **Supported.** Reliable datagram endpoints (`FI_EP_RDM`): messages with and without tags,
//! reads, writes and atomic operations on peers' memory, receives for many messages, peeking at
//! and claiming messages, data and sources in completions, counters, and waiting by call or file
//! descriptor. In addition datagrams (`FI_EP_DGRAM`), and the verbs alone as the fabric
//! `srd-direct`: see [`service`]. Everything works over IPv4 and IPv6. Applications may name any
//! interface that is up; without a name, one interface is offered ([`preferred`]).
//!
//! **Not supported.** `FI_EP_MSG`; memory of devices (`FI_HMEM`); triggered operations, fences,
//! collectives, shared and scalable contexts, and shared address vectors; atomics on `long double`;
//! counters of memory regions. `fi_getinfo` refuses requests beyond the offer, with the reason in
//! the log (`FI_LOG_LEVEL=info`).
//!
//! **Progress** is automatic: the application's own calls do the work, and while the application
//! computes, one thread per endpoint does it ([`srd_host`]).
//!
//! # Loading
//!
//! libfabric loads files called `*-fi.so` from the directories in `FI_PROVIDER_PATH`. Cargo names
//! the library `libsrd_fi.so`, because a crate's name has no dash; `make provider` copies it to
//! `libsrd-fi.so` in a separate directory.
//!
//! ```text
//! FI_PROVIDER_PATH=target/provider fi_info -p srd
//! ```
//!
//! The library does not link libfabric, because a process may load its own copy, and releases
//! differ. The calls that the provider needs are looked up in the core that is loaded ([`core`]).
//! Structures that grow from release to release are allocated by the core only.
//!
//! # Parts
//!
//! | module | content |
//! |---|---|
//! | [`abi`], [`core`] | libfabric's binary interface, and the calls that the provider makes |
//! | [`entry`], [`provider`] | C calls to the objects, and back; the entry point of the library |
//! | [`settings`], `parameters` | the parameters `FI_SRD_*`, and their registration with libfabric |
//! | `requests` | capabilities, requests of applications, and their match |
//! | `objects` | fabrics, domains, endpoints and memory, with the operations of endpoints |
//! | `results` | completions, events and counters |
//!
//! # Safety and panics
//!
//! Unsafe code lives in [`entry`] and [`core`]: memory behind pointers is copied or borrowed there.
//! Buffers of operations and registered memory are passed on as addresses, which
//! [`srd_host::memory`] converts to bytes; the calls that pass such addresses are unsafe as well. A
//! panic in a function that C called ends the process, with its message: Rust aborts when one would
//! leave an `extern "C"` function.

pub mod abi;
#[allow(unsafe_code, reason = "calls into libfabric")]
pub mod core;
#[allow(unsafe_code, reason = "calls from C")]
pub mod entry;
mod objects;
mod parameters;
mod requests;
mod results;
pub mod settings;

pub use entry::provider;
pub use objects::{
    arithmetic, domain, endpoint, fabric, handle, hosts, region, registration, transfer, vector,
};
pub use requests::{address, hints, negotiate, offers, order, preferred, service};
pub use results::{completion, counter, event, failure, ledger, queue, sink};

/// An error, as libfabric numbers it: positive, and returned negated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub std::ffi::c_int);

/// Return value of a call on an object.
pub type Outcome<T = ()> = Result<T, Errno>;
