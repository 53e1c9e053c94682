//! A deterministic packet-level datacenter that runs the production SRD core.
//!
//! ```text
//! Scenario (TOML, or .topo + .cm) --build(transport, seed)--> World<AnyNode> --run--> RunResult
//! ```
//! [`scenario`] describes a run, [`run`] executes runs (many at once), and [`world`] is the engine.
//! The engine consists of [`topology`] with [`egress`] ports, the [`event`] list, [`fault`]s, and
//! the machines on the hosts. Machines implement one trait, [`node::Node`]:
//!
//! - [`srd_node`] hosts the production endpoint;
//! - [`tcp`] is the TCP model with which SRD is compared;
//! - [`roce`] is a model of RoCE, for lossless networks;
//! - [`express`] connects a guest with the TCP model to the production ENA Express card;
//! - [`rank`] hosts the Messaging Layer;
//! - [`card`] hosts the cards of instances, with which [`talk`] repeats the experiments of a talk.
//!
//! [`workload`] creates the flows, [`ideal`] and [`completion`] compute their best possible times,
//! and [`figures`] draws the figures of the SRD paper.
//!
//! One seed determines a run to the last byte. There is one event for each packet and hop, no
//! allocation for each packet, and no table that grows with switches times hosts. A hop costs the
//! engine 60 to 150 ns from 128 to 8192 hosts (`examples/engine_speed.rs`). [`egress`] describes
//! the approximations.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `engine` | the network in operation ([`world`]), its events, switches, routes and faults |
//! | `machines` | machines on the hosts: SRD, [`tcp`], [`roce`], [`express`], [`card`], [`rank`] |
//! | [`scenario`], [`workload`] | experiments as files; flows, and files of other simulators |
//! | `runs` | runs on all cores ([`run`](mod@run)), ideal times, and results ([`report`]) |
//! | [`figures`], [`talk`] | the figures of the SRD paper; experiments of the AWS talk NET402 |
//! | [`soak`] | random worlds, checked by oracles that share no code with the program under test |

mod engine;
pub mod figures;
mod machines;
mod runs;
pub mod scenario;
pub mod soak;
pub mod talk;
pub mod workload;

pub use engine::{egress, event, fault, hash, nic, node, slab, topology, world};
pub use machines::{any_node, blast, card, express, rank, roce, srd_node, tcp};
pub use runs::{completion, ideal, process, report, run, waste};
