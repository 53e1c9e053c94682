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
//!                        +---------    which stands for the internet
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`protocol`] | what the service is asked, and answers |
//! | [`client`] | the asking side |
//! | [`config`] | `card.toml` |
//! | `reload` | the configuration again, for a card that runs |
//! | `server` | the socket |
//! | `service` | the loop that moves packets and obeys |
//! | `state` | what it works on |
//! | `world`, `changes`, `pending` | instances that are added while it runs; other rules |
//! | `place`, `maker` | namespaces with their devices, and the thread that makes them |
//! | `namespace`, `programs` | namespaces and their interfaces; programs that run in them |
//! | `resolv_conf` | the resolver of a namespace's programs |
//! | `edge`, `own` | the internet's side; addresses of this machine, which instances do not reach |
//! | `transport`, `hosts` | other hosts over SRD, and their traffic |
//! | `plane`, `asking` | the whole VPC on a thread of its own, and what the card asks of it |
//! | [`helper`] | what needs privileges, and what is given back at the end, however it comes |
//! | `locks` | what keeps cards apart |
//! | `earlier` | cards of earlier versions |
//! | `guests`, `status`, `kernel_counts` | instances, made and removed, and what the kernel counts of them |
//! | `port`, `kernel` | the device of an interface: TUN, or vhost-user |
//! | `memory` | a program of this process in the place of a device |
//! | `gone`, `remake` | devices that were deleted; how they are made again |
//! | `adapter`, `devices` | queues, steering and interrupts of a device, and changes of them |
//! | `pages`, `publishing` | figures as numbers that any thread reads, and when they are written |
//! | `views`, `flows` | what readers ask, put into words on their own threads |
//! | `turns`, `outside` | whose packets are read next |
//! | `late` | packets that waited for the loop |
//! | `packets`, `gateways` | where packets go |
//! | `logging`, `logs` | flow logs: which, and their files |
//! | `link_local` | names, metadata and time for instances |
//! | `metrics` | figures over HTTP |
//! | `trace`, `following` | packets that a person follows: in words, and in the loop |
//! | `handover` | another process goes on with the card |
//! | `orders` | requests on their way to the loop |
#![forbid(unsafe_code)]

mod adapter;
mod asking;
mod changes;
pub mod client;
pub mod config;
mod devices;
mod earlier;
mod edge;
mod failure;
mod file_identity;
mod flows;
mod following;
mod gateways;
mod gone;
mod guests;
mod handover;
pub mod helper;
mod hosts;
mod kernel;
mod kernel_counts;
mod late;
mod link_local;
mod locks;
mod logging;
mod logs;
mod maker;
mod memory;
mod metrics;
mod namespace;
mod orders;
mod outside;
mod own;
mod packets;
mod pages;
mod pending;
mod place;
mod plane;
mod port;
mod privileges;
mod programs;
pub mod protocol;
mod publishing;
mod reload;
mod remake;
mod resolv_conf;
mod server;
mod service;
mod state;
mod status;
mod trace;
mod transport;
mod turns;
mod views;
mod warnings;
mod world;

pub use client::Client;
pub use failure::{Missing, WrongSettings};
pub use memory::MemoryGuest;
pub use metrics::metrics_sample;
pub use orders::Stopper;
pub use reload::{Reloader, check};
pub use state::{Ended, Metrics, Options, Service};
pub use transport::{HostOptions, PATHS_DEFAULT, PORT_DEFAULT, Protection, TransportOptions};

/// Where the service listens by default.
pub const SOCKET_DEFAULT: &str = "/run/srd-card/card.sock";
