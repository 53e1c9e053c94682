//! A deterministic packet-level datacenter that runs the production SRD core.
//!
//! ```text
//! Scenario (TOML, or .topo + .cm) --build(transport, seed)--> World<AnyNode> --run--> RunResult
//! ```
//! [`scenario`] says what to run, [`run`] runs it (many at once), [`world`] is the engine:
//! [`topology`] with [`egress`] ports, the [`event`] list, [`fault`]s, and the machines on the
//! hosts behind one trait, [`node::Node`]: [`srd_node`] hosts the production endpoint, [`tcp`]
//! is the model that it is compared with, [`roce`] another one, for lossless networks,
//! [`express`] puts a guest with that TCP behind the production card, and [`rank`] hosts the
//! Messaging Layer. [`card`] hosts the cards of instances, with which [`talk`] repeats the
//! experiments of a talk. [`workload`] makes the flows, [`ideal`] and [`completion`] say what they
//! could reach at best, [`figures`] draws those of the SRD paper.
//!
//! One seed determines a run to the last byte. One event per packet and hop, no allocation
//! per packet, no table that grows with switches times hosts: a hop costs the engine 60 to
//! 150 ns from 128 to 8192 hosts (`examples/engine_speed.rs`). What is approximated is said
//! in [`egress`].

pub mod any_node;
pub mod blast;
pub mod card;
pub mod completion;
pub mod egress;
pub mod event;
pub mod express;
pub mod fault;
pub mod figures;
mod files;
pub mod hash;
pub mod ideal;
pub mod nic;
pub mod node;
mod pattern;
pub mod process;
pub mod rank;
pub mod report;
pub mod roce;
pub mod run;
pub mod scenario;
pub mod slab;
pub mod soak;
pub mod srd_node;
pub mod talk;
pub mod tcp;
pub mod topology;
mod wire_image;
pub mod workload;
pub mod world;
