//! The verdict on a packet, step by step.
//!
//! [`judge`] walks all objects anew for each packet, without a cache and without a table of
//! connections. It is slow and meant to be obviously right: other forms of the same rules are
//! tested against it, and its steps are the explanation that a person reads.
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
//! | `acl` | network access control lists |
//! | `route` | route tables |
//! | `traffic` | which packets a rule is about |
//! | `walk` | the order of all these |
//! | `step` | what is found on the way |
//! | `mirror` | which packets a mirror filter accepts |
//! | `connection` | a packet and its answer |
//! | `ports` | for which ports a connection works |

mod acl;
mod connection;
pub(crate) mod groups;
mod mirror;
mod ports;
pub(crate) mod route;
mod step;
pub(crate) mod traffic;
pub(crate) mod walk;

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
