//! A deterministic packet-level datacenter that runs the production SRD core.

pub mod any_node;
pub mod blast;
pub mod egress;
pub mod event;
pub mod fault;
pub mod hash;
pub mod ideal;
pub mod node;
pub mod process;
pub mod run;
pub mod scenario;
pub mod slab;
pub mod soak;
pub mod srd_node;
pub mod tcp;
pub mod topology;
pub mod workload;
pub mod world;
