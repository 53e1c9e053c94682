//! Enrolment of hosts at the control plane: the parts of the protocol that both ends have.
//!
//! A host has one TLS connection to its controller. Both ends identify themselves by Ed25519 keys
//! (raw public keys, RFC 7250), so there are no certificates and no authorities. A host finds the
//! controller's fingerprint in its enrolment token. The controller finds the fingerprint of a host
//! in its store.
//!
//! ```text
//!   host                                                      controller
//!   ---- TLS 1.3: each end shows its key ---------------------------
//!   Enrol { token, name, key, endpoints, capacity }  ----->   a token is used up, a name is taken
//!   or Follow { generation }                         ----->   the host of this identity
//!                                   <----- Welcome { name, overlay address }
//!                                   <----- Snapshot { generation, peers }, or a delta
//!   Applied { generation }          ----->
//!                                   <----- Delta { generation, changed, removed }
//!                                   <----- Cloud { generation, tables }, for hosts of instances
//!   CloudApplied { generation }     ----->
//!                                   <----- Identities { present, next }, if the host has others
//!   IdentitiesStored { ... }        ----->
//!   Ping                            ----->
//!                                   <----- Pong
//!
//!   on a connection of its own:
//!   Pod { request }                 ----->   an instance of this host starts or ends
//!                                   <----- Pod { answer }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | the messages |
//! | [`cloud`] | the part of the cloud that a host needs |
//! | [`frame`] | messages in a stream of bytes |
//! | [`pod`] | requests of a host about its pods |
//! | [`token`] | enrolment tokens |
//! | [`tls`] | identities, and the TLS settings of both ends |
#![forbid(unsafe_code)]

pub mod cloud;
pub mod frame;
pub mod message;
pub mod pod;
pub mod tls;
pub mod token;

pub use cloud::{CloudTables, CloudUpdate};
pub use message::{Capacity, ControllerIdentities, FromController, FromHost, Host, Peer};
pub use message::{Refusal, RefusalKind, Secret};
pub use pod::{PodAnswer, PodLaunch, PodRequest};
pub use tls::{Fingerprint, Identity};
pub use token::Token;
