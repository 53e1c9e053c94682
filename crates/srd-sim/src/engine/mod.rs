//! The engine: a network of switches and links, its events, and the interface to its machines.
//!
//! | module | content |
//! |---|---|
//! | [`world`] | the network, the machines on it, and the clock |
//! | [`event`], [`slab`] | the event list, and the packets in the simulation |
//! | [`topology`], [`egress`], [`hash`] | hosts, switches and routes; ports with queues; ECMP |
//! | [`fault`] | faults as data |
//! | [`node`] | the interface between the network and the machines |
//! | [`nic`] | the interface between an SRD endpoint and the simulated wire |
//! | [`wire_image`] | simulated packets as bytes of IPv4, for capture files |

pub mod egress;
pub mod event;
pub mod fault;
pub mod hash;
pub mod nic;
pub mod node;
pub mod slab;
pub mod topology;
pub(crate) mod wire_image;
pub mod world;
