//! Experiments with the paths of flows, one in each module.

pub(super) mod collisions;
pub(super) mod limit;
pub(super) mod nconnect;
pub(super) mod ordering;
pub(super) mod single_flow;
