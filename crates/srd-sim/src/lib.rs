//! A deterministic packet-level datacenter that runs the production SRD core.

pub mod event;
pub mod hash;
pub mod node;
pub mod tcp;
pub mod topology;
