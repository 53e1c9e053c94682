//! Reference evaluation of a packet, step by step.
//!
//! [`judge`] reads all objects again for each packet, without a cache and without a table of
//! connections. It is slow and meant to be obviously correct. Other implementations of these rules
//! are tested against it, and its steps explain a verdict to a person.
//!
//! ```text
//!  interface: own address? -> service? -> group out
//!    same subnet ------------------------------------------+
//!    else: ACL out -> route -> gateway: translate, or end  |
//!                       \-> local, peering -> ACL in ------+-> group in -> interface
//! ```
//!
//! | file | rules |
//! |---|---|
//! | `groups` | security groups, and whether a flow is tracked |
//! | `clouds` | the cloud to which an address belongs |
//! | `acl` | network access control lists |
//! | `route` | route tables |
//! | `traffic` | packets that match a rule |
//! | `walk` | order of the evaluation |
//! | `step` | steps of an evaluation, and verdicts |
//! | `mirror` | packets that a mirror filter accepts |
//! | `connection` | a packet and its answer |
//! | `ports` | ports with which a connection works |

mod acl;
mod clouds;
mod connection;
pub(crate) mod groups;
mod mirror;
mod ports;
pub(crate) mod route;
mod step;
pub(crate) mod traffic;
pub(crate) mod walk;

pub use clouds::lead_elsewhere;
pub use connection::{Connection, connection, connection_by_port};
pub use groups::{Direction, Tracking};
pub use mirror::mirrors;
pub use ports::{
    Condition, Explained, INTERNET_PORTS, LINUX_PORTS, NAT_PORTS, PortOf, explain, partly_admitted,
};
pub use step::{
    Exit, Judgement, MissingObject, Origin, Reach, Reason, Service, Step, Translator, Verdict,
};
pub use walk::{Remembers, Translated, judge, judge_answer, judge_flow, service};
