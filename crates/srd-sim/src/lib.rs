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
//! - [`tcp`] is the model with which SRD is compared;
//! - [`roce`] is another such model, for lossless networks;
//! - [`express`] puts a guest with that TCP behind the production card;
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
