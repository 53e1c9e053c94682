//! RoCEv2: the transport that needs a lossless network, to compare SRD with.
//!
//! A flow is one message of one reliable connection on one path, that of its 5-tuple (ECMP). The
//! sender starts at the link's speed and has no window. The receiver takes packets in order only:
//! one that is missing costs everything that was sent after it (go-back-N, InfiniBand Architecture
//! Specification 1.2.1, section 9.7.5). So the switches must not drop: they pause their senders
//! ([`crate::world::LosslessRules`]). Pauses stop every flow of a link, those too that go
//! elsewhere, and spread; DCQCN keeps them rare.
//!
//! | file | what |
//! |---|---|
//! | `config` | every knob, with the published values as defaults |
//! | `packet` | what a packet carries |
//! | `dcqcn` | the rate of a connection |
//! | `connection` | go-back-N at the sender and at the receiver |
//! | `node` | the host |
//!
//! DCQCN is that of Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM
//! 2015: switches mark as RED does, the receiver answers marks with a CNP every 50 us at most, the
//! sender cuts its rate for each and raises it again by a timer and a byte counter.
//!
//! Not modelled: read and atomic operations, the requester's flow-control credits, several
//! priorities, dynamic thresholds of a shared buffer, the NIC's own limits (queue pair caches,
//! packet rates).

pub mod config;
mod connection;
pub mod dcqcn;
mod node;
pub mod packet;

pub use config::{DcqcnConfig, RoceConfig};
pub use node::{PORT, RoceNode, RoceStats, flow_hash, status};
pub use packet::{RoceKind, RocePacket};

#[cfg(test)]
mod network_tests;
