//! Experiments with faults, one in each module.

pub(super) mod failover;
pub(super) mod flood;
pub(super) mod loss;
pub(super) mod soak;
