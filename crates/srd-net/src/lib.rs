//! SRD over real UDP sockets: reliable, unordered datagrams that take every path of a fabric.
//!
//! The protocol is `srd-proto`, which uses no socket, clock or thread; this crate adds all three.
//! Two ways to use it:
//!
//! * [`Endpoint`]: a separate thread does the work; any thread or future of the program sends and
//!   receives through handles. For ordinary programs.
//! * [`LocalEndpoint`]: the caller's thread does the work, inside [`poll`](LocalEndpoint::poll). It
//!   avoids hand-overs between threads, each of which costs 10 us or more. For the lowest latency
//!   and the highest throughput per core.
//!
//! A test of this crate, as an example:
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `endpoints` | [`Endpoint`] and [`LocalEndpoint`]: loop, driver thread, settings, synchronisation |
//! | `back_ends` | [`PacketIo`] and its implementations: UDP, [AF_XDP](xdp), [shared memory](near), a network in memory, none |
//! | `interfaces` | [TUN devices](tun), captures ([`tap`], [`tcx`]), [routes and rates](link), other sockets |
//! | [`clock`], [`keys`], `key_file` | time; keys as text and in files |
//! | `copies` | detects that this machine was restored or cloned |
//! | [`page`] | figures that one thread writes and any thread reads, without a lock |
//! | `sys` | all `unsafe` code of the crate |
#![doc = concat!("```ignore\n", include_str!("../tests/it/documentation.rs"), "```\n")]
//!
//! Every call that waits also exists as a future (`recv_async`, `send_async`, ...); the futures
//! need no particular runtime.
//!
//! # Ports of an endpoint
//! One UDP port that peers send to (the base port), and one source port for each path, consecutive:
//! a switch that hashes ports sends each path along another route. All packets are received on the
//! base port. An endpoint needs no privilege; with `CAP_NET_ADMIN` socket buffers may exceed
//! `net.core.rmem_max`.
//!
//! # After `fork`
//! An endpoint belongs to the process that has opened it. In the child of a `fork`, each call of a
//! [`LocalEndpoint`] that moves packets returns an error, since parent and child have the same
//! keys. The thread of an [`Endpoint`] does not exist there, and calls may wait forever: a child
//! opens endpoints of its own, or executes another program.
//!
//! # Supported
//! IPv4 and IPv6; several local addresses in one endpoint, for a node with several network cards
//! ([`UdpOptions::further`], P17); UDP segmentation and receive offload, with a fallback where the
//! kernel or device does not support it; ECN bits both ways; kernel receive timestamps; blocking,
//! spinning and adaptive waiting; datagram boundaries; back-pressure in both directions; a packet
//! larger than the MTU is never fragmented; a notice reports it with the size that works.
//!
//! # Not supported
//! Systems other than Linux. An IPv6 flow label that this crate chooses: the kernel derives one
//! from each path's port (`net.ipv6.auto_flowlabels`, on by default), which serves a switch equally
//! well.
mod back_ends;
pub mod clock;
mod copies;
mod endpoints;
mod interfaces;
mod key_file;
pub mod keys;
pub mod page;
/// Primitives of the hand-written synchronisation. The tests replace these primitives by a
/// scheduler, which tries many orders of the threads' steps (`tests/schedules.rs`).
mod primitives {
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic};
}
mod sys;

pub use back_ends::io::{
    IoStats, Notice, PacketIo, PollMode, Segments, SendOutcome, Undelivered, UnknownPollMode, Wait,
};
pub use back_ends::memory::{MemoryIo, MemoryNet, MemoryOptions};
pub use back_ends::near::NearIo;
pub use back_ends::none::NoIo;
pub use back_ends::udp::UdpIo;
pub use back_ends::{io, near, xdp};
pub use clock::Clock;
pub use copies::Copied;
pub use endpoints::endpoint::{
    Closed, ConnectError, Endpoint, FlushError, Peer, Received, SendError,
};
pub use endpoints::engine::{Application, Context};
pub use endpoints::events::{EndpointEvent, Report};
pub use endpoints::local::LocalEndpoint;
pub use endpoints::options::{BindError, BindOptions, UdpOptions};
pub use endpoints::wake::IoWaker;
pub use interfaces::datagrams::Datagrams;
pub use interfaces::link::{Link, LocalAddress, detect_link_rate, local_addresses};
pub use interfaces::tun::{Tun, TunWriter};
pub use interfaces::{link, raw, tap, tcx, tun};
pub use key_file::{KeyFileError, read_key_file, read_key_file_of};
pub use sys::fork::{OfProcess, Process};
