//! The control plane: the Query APIs of EC2 and Auto Scaling for virtual private clouds. No packet
//! of an instance passes through it. It sends the rules to the cards, which apply them.
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
//! | [`guard`] | refusal of requests that web pages in a browser of this machine cause |
//! | [`sign`] | Signature Version 4 |
//! | [`control`] | authentication, transactions, idempotence, groups that follow each change |
//! | [`store`] | the interface to a durable store |
//! | [`machines`] | the interface to the data plane, which runs instances and applies rules |
//! | [`hosts`] | hosts that enrol themselves, and their peers |
//! | [`project`], [`plane`] | the text of a `vpc.toml` for a region, and the card that uses this text |
//! | [`fleet`] | instances on hosts that have enrolled |
//! | [`http`], [`server`] | requests of HTTP, and the server |
//! | [`tls`] | certificates of the server |
//! | `clients`, `slots` | the limit of the connections of a client address, and of any other owner |
//! | `stalls` | timeout of connections whose clients read no bytes |
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
