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
//! The compiled rules ([`srd_vpc::compile`]) judge the first packet of a flow. The verdict is kept
//! with the flow, for each direction, with the number of the last change of rules. After a change,
//! each flow that it may concern is judged again before its next packet passes; this includes
//! packets that wait for a limit (V4). Packets of ICMP and fragments are judged each time (V3); a
//! later fragment is judged as its first one.
//!
//! | file | what |
//! |---|---|
//! | [`card`] | interfaces, instances, rules |
//! | `flow` | state of a flow |
//! | `epochs` | validity of verdicts |
//! | `fragments`, `firsts`, `with_first` | data of first fragments, used for the later ones |
//! | `egress`, `batch` | packets that guests send, one by one and in batches |
//! | `ingress` | packets that arrive for guests |
//! | `returns` | hosts to which answers for a NAT gateway go |
//! | `shares` | number of entries of a table for each owner |
//! | `onward`, `onward_by_nat` | limits and the path after them; NAT gateways between interfaces |
//! | [`port`], `read`, `parcel` | an interface, a frame, a packet in the limits |
//! | `translate` | addresses that gateways write |
//! | `logged`, [`logs`] | packets that flow logs count, and the logs' windows |
//! | `mirrored`, [`mirror`] | packets that mirror sessions copy, and the copies |
//! | [`asking`] | packets that wait for the location of an interface |
//! | [`trace`], `traced` | packets that are followed, and the recording of their events |
//! | [`nat`], `nat_error` | ports that stand for connections through NAT gateways |
//! | [`envelope`] | sender and receiver of a packet between hosts |
//! | [`stored`] | state for another program: [`Card::export`] |
//! | [`drops`] | causes of dropped packets |
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

pub use records::{logs, mirror, trace};

pub use tables::{nat, stored};

pub use card::Card;
pub use drops::{Cause, Drops};
pub use envelope::{Envelope, UnknownKind};
pub use port::{Direct, Environment, FlowState, FrameRoute, Guest, PortCounts, PortId, Ride};
pub use records::logs::LoggedWindow;
pub use records::mirror::Mirror;
