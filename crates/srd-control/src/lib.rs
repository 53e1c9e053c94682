//! The Query APIs of EC2 and Auto Scaling for virtual private clouds.
//!
//! Clients of EC2 send forms over HTTP. [`wire`] reads them by the public service model,
//! [`actions`] change the state, and [`wire`] writes the answers as XML. Each request is one
//! transaction. A data plane implements [`machines::Machines`], and a durable store
//! [`store::Store`].
//!
//! | module | content |
//! |---|---|
//! | [`state`] | accounts, regions and their objects |
//! | [`defaults`] | the default VPC of a new region |
//! | [`wire`] | forms and XML by the service models |
//! | [`actions`] | the actions of EC2 and Auto Scaling |
//! | [`services`] | services beside EC2 |
//! | [`guard`] | refusal of requests that web pages cause |
//! | [`sign`] | Signature Version 4 |
//! | [`control`] | authentication, transactions, idempotence, groups that follow each change |
//! | [`store`] | the seam to a durable store |
//! | [`machines`] | the seam to the data plane |
//! | [`hosts`] | hosts that enrol themselves, and their peers |
//! | [`project`], [`plane`] | a region as the text of a `vpc.toml`, and a card that uses it |
//! | [`fleet`] | instances on hosts that have enrolled |
//! | [`http`], [`server`] | requests of HTTP, and the server |
//! | [`tls`] | certificates of the server |
//! | `clients`, `slots` | connections of one client address, limited in number; this limit for any owner |
//! | `stalls` | the end of connections that stall |
//! | `random`, `clock` | random bytes of the kernel, the time of day |
//! | [`error`] | errors of the API |
#![forbid(unsafe_code)]

pub mod actions;
mod clients;
mod clock;
pub mod control;
pub mod defaults;
pub mod error;
pub mod fleet;
pub mod guard;
pub mod hosts;
pub mod http;
pub mod machines;
pub mod plane;
pub mod project;
mod random;
pub mod server;
pub mod services;
pub mod sign;
mod slots;
mod stalls;
pub mod state;
pub mod store;
pub mod tls;
pub mod wire;

pub(crate) use srd_vpc::regions;
