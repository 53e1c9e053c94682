//! Instances of this machine: namespaces whose interfaces belong to a virtual private cloud, and
//! the card between them.
//!
//! ```text
//!  namespace srd-i-web          the service                       namespace srd-i-app
//!  +----------------+    +---------------------------+           +----------------+
//!  | programs       |    |  card: rules, limits,     |           | programs       |
//!  | ens5 (TUN) ----+--->|  flows                    |---------->+- ens5 (TUN)    |
//!  +----------------+    |     |                     |           +----------------+
//!                        |     +--> srd-igw (TUN): the network of this machine,
//!                        +---------    which plays the role of the internet
//! ```
//!
//! The path of a packet: the device of the sender (`interfaces`), the loop of the service, the card
//! (`srd_card::vpc`), and the device of the receiver. If the receiver is on another host, `traffic`
//! sends the packet over SRD instead.
//!
//! | module | content |
//! |---|---|
//! | `service`, `state` | the card's loop, which moves packets and applies requests, and its state |
//! | `traffic` | packets: their order, their destinations, other hosts |
//! | `cloud` | instances, and changes of the cloud while the card runs |
//! | `interfaces` | devices of interfaces: TUN, vhost-user, memory |
//! | `machine` | namespaces, programs, addresses and locks of this machine |
//! | `control` | settings of a file, requests and answers |
//! | `figures` | metrics, status and flow logs |
//! | [`helper`] | the process with privileges, which removes namespaces and devices at the end of the card |
//! | [`node`] | the service: the card, and the interface of `srd up` if there is one |
//! | `handover` | the card in the hand-over to another process |
//! | `link_local` | names, metadata and time for instances |
//! | `failure`, `warnings` | errors of a start, and warnings about a configuration |
#![forbid(unsafe_code)]

mod cloud;
#[cfg(test)]
#[path = "../../srd-vpc-file/tests/support/cloud_text.rs"]
mod cloud_text;
mod control;
mod failure;
mod figures;
mod handover;
pub mod helper;
mod interfaces;
mod link_local;
mod machine;
pub mod node;
mod service;
mod state;
mod traffic;
mod warnings;

pub use cloud::reload::check;
pub use control::client::Client;
pub use control::place::prepare_socket;
pub use control::{client, config, protocol};
pub use failure::{Missing, WrongSettings};
pub use figures::export;
pub use figures::metrics::metrics_sample;
pub use interfaces::memory::MemoryGuest;
pub use machine::pods;
#[doc(hidden)]
pub use traffic::beside::{Crossing, Exchange, Neighbours};
#[doc(hidden)]
pub use traffic::received::Received;

/// Modules whose messages of the level `info` a card logs even if the user does not request more
/// messages: those about namespaces, and about programs in them.
pub const LOG_TARGETS: [&str; 2] = [machine::namespace::LOG_TARGET, machine::programs::LOG_TARGET];

/// Default path of the control socket of `srd card up`.
pub const SOCKET_DEFAULT: &str = "/run/srd-card/card.sock";
