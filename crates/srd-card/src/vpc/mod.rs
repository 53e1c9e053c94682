//! Packets of a virtual private cloud: from the interfaces of a host's instances to each other, to
//! other hosts, and out of the cloud.
//!
//! ```text
//!  guest --> read --> flow ------------> limits --> rewrite --> other host, edge
//!                      | miss              |                |
//!                      v                   v                v
//!                 rules: source,        queue, drop      other guest of this host
//!                 groups, lists,
//!                 routes, mapping
//!
//!  guest <-- ring <-- limits <-- flow <-- read <-- envelope <-- other host, edge
//!                                 | miss
//!                                 v
//!                  rules: sender, lists, groups
//! ```
//!
//! The compiled rules ([`srd_vpc::compile`]) evaluate the first packet of a flow. The verdict is
//! stored with the flow, for each direction, with the number of the last change of rules. After a
//! change, each flow that it may concern is evaluated again before its next packet passes; this
//! includes packets that wait for a limit (V4). ICMP packets and fragments are evaluated each time
//! (V3); a later fragment is evaluated like the first fragment of its datagram.
//!
//! | module | content |
//! |---|---|
//! | [`card`] | interfaces, instances and rules |
//! | [`port`] | an interface, and the environment of the card |
//! | `frames` | the path of a frame through the card |
//! | `tables` | state of flows, fragments and NAT gateways |
//! | `records` | records of packets: flow logs, mirror sessions, traces |
//! | [`asking`] | packets that wait for the location of an interface |
//! | [`envelope`] | sender and receiver of a packet between hosts |
//! | [`drops`] | causes of dropped packets |
//! | [`workers`] | several workers of one host |
//!
//! The rules are those of `docs/spec/card.md`, section 5.

pub mod asking;
pub mod card;
pub mod drops;
pub mod envelope;
mod frames;
pub mod port;
mod records;
mod tables;
pub mod workers;

pub use card::Card;
pub use drops::{Cause, Drops};
pub use envelope::{Envelope, UnknownKind};
pub use port::{Direct, Environment, FlowState, FrameRoute, Guest, PortCounts, PortId, Ride};
pub use records::logs::LoggedWindow;
pub use records::mirror::Mirror;
pub use records::{logs, mirror, trace};
pub use tables::{nat, stored};
