//! Interfaces of the machine, and traffic on them outside of an endpoint.
//!
//! | module | content |
//! |---|---|
//! | [`tun`] | a TUN device: the guest side of the card |
//! | [`tap`], [`tcx`] | passive captures of an interface: a packet socket, and eBPF at tc |
//! | [`assembler`] | an assembler for the eBPF programs |
//! | [`link`] | properties of the route to a destination |
//! | [`datagrams`], [`raw`] | UDP and ordinary sockets for programs that do not use SRD |

pub(crate) mod assembler;
pub(crate) mod datagrams;
pub mod link;
pub mod raw;
pub mod tap;
pub mod tcx;
pub mod tun;
