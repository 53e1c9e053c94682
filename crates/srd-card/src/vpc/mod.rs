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
//! The first packet of a flow is judged by the compiled rules ([`srd_vpc::compile`]); what they say
//! is kept with the flow, for each direction, under the number of the last change of rules. After a
//! change each flow that it may concern is judged again before its next packet passes, packets that
//! wait for a limit included (V4). Packets of ICMP and fragments are judged each time (V3), a later
//! fragment as its first one.
//!
//! | file | what |
//! |---|---|
//! | [`card`] | interfaces, instances, rules |
//! | `flow` | what is kept with a flow |
//! | `epochs` | which verdicts hold |
//! | `fragments`, `firsts`, `with_first` | what first fragments say for the later ones |
//! | `egress`, `batch` | what guests send, one by one and several at once |
//! | `ingress` | what arrives for them |
//! | `returns` | to which host answers for a NAT gateway go |
//! | `shares` | how many places of a table each owner has |
//! | `onward`, `onward_by_nat` | limits, and what passed them; NAT gateways between interfaces |
//! | [`port`], `read`, `parcel` | an interface, a frame, a packet on its way |
//! | `translate` | addresses that gateways write |
//! | `logged`, [`logs`] | what flow logs count, and its windows |
//! | `mirrored`, [`mirror`] | what is copied for mirror sessions, and the copies |
//! | [`asking`] | packets that wait until it is known where an interface is |
//! | [`trace`], `traced` | packets that are followed, and where their way is noted |
//! | [`nat`], `nat_error` | ports that stand for connections through NAT gateways |
//! | [`envelope`] | what hosts say of a packet to each other |
//! | [`stored`] | state for another program: [`Card::export`] |
//! | [`drops`] | why packets were dropped |
//!
//! The rules are those of `docs/spec/card.md`, section 5.

pub mod asking;
mod batch;
pub mod card;
pub mod drops;
mod egress;
pub mod envelope;
mod epochs;
mod firsts;
mod flow;
mod fragments;
mod ingress;
mod logged;
pub mod logs;
pub mod mirror;
mod mirrored;
pub mod nat;
mod nat_error;
mod onward;
mod onward_by_nat;
mod parcel;
pub mod port;
mod read;
mod returns;
mod shares;
pub mod stored;
pub mod trace;
mod traced;
mod translate;
mod with_first;

pub use card::Card;
pub use drops::{Cause, Drops};
pub use envelope::{Envelope, UnknownKind};
pub use logs::LoggedWindow;
pub use mirror::Mirror;
pub use port::{Around, Direct, FlowState, Guest, PortCounts, PortId, Ride, Way};
