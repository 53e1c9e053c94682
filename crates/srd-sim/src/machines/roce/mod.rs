//! Model of RoCEv2, a transport that needs a lossless network. SRD is compared with it.
//!
//! A flow is one message of one reliable connection on one path, which its 5-tuple selects (ECMP).
//! The sender starts at the link's speed and has no congestion window. The receiver accepts packets
//! only in order. If a packet is missing, all packets that were sent after it are retransmitted
//! (go-back-N, InfiniBand Architecture Specification 1.2.1, section 9.7.5). Because a loss costs so
//! much, the switches do not drop: they pause their senders ([`crate::world::LosslessRules`]). A
//! pause stops every flow of a link, even flows to other destinations, and pauses spread. DCQCN
//! makes pauses rare.
//!
//! | file | contents |
//! |---|---|
//! | `config` | every parameter, with the published values as defaults |
//! | `packet` | contents of a packet |
//! | `dcqcn` | the rate of a connection |
//! | `connection` | go-back-N at the sender and at the receiver |
//! | `node` | the host |
//!
//! DCQCN is that of Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM
//! 2015. Switches mark packets as RED does. The receiver answers marks with a CNP (congestion
//! notification packet), at most every 50 us. The sender reduces its rate for each CNP and raises
//! it by a timer and a byte counter.
//!
//! The model lacks: read and atomic operations, the requester's flow-control credits, several
//! priorities, dynamic thresholds of a shared buffer, and the NIC's own limits (queue pair caches,
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
