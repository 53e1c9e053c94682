//! Back ends: how the packets of an endpoint are sent and received.
//!
//! | module | content |
//! |---|---|
//! | [`io`] | the interface between the driver and a back end |
//! | [`udp`], [`ports`] | the UDP back end, and its consecutive ports |
//! | [`xdp`] | the AF_XDP back end |
//! | [`near`] | shared memory between endpoints of the same machine |
//! | [`memory`] | a network in memory, for tests |
//! | [`none`] | no network |

pub mod io;
pub(crate) mod memory;
pub mod near;
pub(crate) mod none;
pub(crate) mod ports;
pub(crate) mod udp;
pub mod xdp;
