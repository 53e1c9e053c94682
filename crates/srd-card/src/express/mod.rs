//! The Express stage: packets that SRD carries, and packets with plain encapsulation.
//!
//! `stage` contains the state of the stage, `peer` that of each peer. `control` changes the rules.
//! `egress` moves packets from the guest to the queues, `feed` from the queues to the transport,
//! and `ingress` from the transport to the guest. `cloud` moves frames of clouds in both
//! directions. For frames of clouds outside of SRD, `paths` selects the path, and `bundles` puts
//! several frames into one datagram. `offers` contains the agreement between cards on the packets
//! that SRD carries, `absent` the limit for peers without an offer, and `report` the reports for
//! users.

mod absent;
mod bundles;
mod cloud;
mod control;
mod egress;
mod feed;
mod ingress;
mod offers;
mod paths;
mod peer;
mod report;
mod stage;
#[cfg(test)]
mod tests;

pub use cloud::{Arrivals, Arrived, Parcel};
pub use ingress::Partner;
pub use peer::Reach;
pub use report::{FlowReport, PeerReport};
pub use stage::{Express, Guest};
