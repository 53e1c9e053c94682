//! The Express stage: packets that SRD carries, and packets with plain encapsulation.
//!
//! `stage` contains its state, `peer` that of each peer. `control` changes the rules. `egress`
//! moves packets from the guest to the queues, `feed` from there to the transport; `ingress` moves
//! them from the transport to the guest. `cloud` does both for frames of clouds. For their frames
//! outside of SRD, `paths` selects the path, and `bundles` puts several into one datagram.
//! `offers` contains the agreement between cards, `report` the reports for users.

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
