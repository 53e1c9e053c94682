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
//! | file | contents |
//! |---|---|
//! | [`protocol`] | requests to the service, and its answers |
//! | [`client`] | the client of the socket |
//! | [`config`] | `card.toml` |
//! | `reload` | reading the configuration again while the card runs |
//! | `server` | the socket |
//! | `service` | the loop that moves packets and applies requests |
//! | `state` | state of the loop |
//! | `world`, `changes`, `pending` | added instances and other changes while the card runs |
//! | `place`, `maker` | namespaces with their devices, and the thread that makes them |
//! | `namespace`, `programs` | namespaces and their interfaces; programs that run in them |
//! | `resolv_conf` | the resolver of a namespace's programs |
//! | `edge`, `own` | the internet's side; addresses of this machine, which instances do not reach |
//! | `transport`, `hosts` | other hosts over SRD, and their traffic |
//! | `plane`, `asking` | the whole VPC on a thread of its own, and the card's queries to it |
//! | [`helper`] | the process with privileges, which gives everything back at the end of the card |
//! | `locks` | locks that separate cards from each other |
//! | `earlier` | cards of earlier versions |
//! | `guests`, `status`, `kernel_counts` | instances, their status, and the kernel's counters |
//! | `port`, `kernel` | the device of an interface: TUN, or vhost-user |
//! | `memory` | a program of this process in place of a device |
//! | `gone`, `remake` | deleted devices, and their repair |
//! | `adapter`, `devices` | queues, steering and interrupts of a device, and changes of them |
//! | `pages`, `publishing` | figures as numbers that any thread reads, and their publication |
//! | `views`, `flows` | answers to readers, which their own threads format |
//! | `turns`, `outside` | order in which packets are read |
//! | `late` | packets that waited for the loop |
//! | `packets`, `gateways` | reading of packets, and their destinations |
//! | `logging`, `logs` | flow logs: their selection, and their files |
//! | `link_local` | names, metadata and time for instances |
//! | `metrics` | figures over HTTP |
//! | `trace`, `following` | traced packets: as text, and in the loop |
//! | `handover` | hand-over of the card to another process |
//! | `orders` | requests on their way to the loop |
#![forbid(unsafe_code)]

mod cloud;
mod control;
mod failure;
mod figures;
mod handover;
pub mod helper;
mod interfaces;
mod link_local;
mod machine;
mod service;
mod state;
mod traffic;
mod warnings;

pub use control::{client, config, protocol};

pub use cloud::reload::{Reloader, check};
pub use control::client::Client;
pub use control::orders::Stopper;
pub use failure::{Missing, WrongSettings};
pub use figures::metrics::metrics_sample;
pub use interfaces::memory::MemoryGuest;
pub use state::{Ended, Metrics, Options, Service};
pub use traffic::transport::{
    HostOptions, PATHS_DEFAULT, PORT_DEFAULT, Protection, TransportOptions,
};

/// Default socket of the service.
pub const SOCKET_DEFAULT: &str = "/run/srd-card/card.sock";
