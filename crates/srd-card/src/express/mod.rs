//! The Express stage: packets that ride SRD, and those that go plainly.
//!
//! `stage` holds its state, `peer` that of each peer; `control` changes the rules; `egress` takes
//! packets from the guest to the queues, `feed` from there to the transport; `ingress` takes them
//! from the transport to the guest; `cloud` does both for frames of clouds, `paths` chooses those
//! of plain ones, and `bundles` lets them share datagrams; `offers` are what cards agree on;
//! `report` is for people.

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
