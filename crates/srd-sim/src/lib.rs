//! A deterministic packet-level datacenter that runs the production SRD core.

pub mod node;
pub mod tcp;
