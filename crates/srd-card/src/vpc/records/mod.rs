//! Records of packets: flow logs, mirror sessions and traces.

pub(super) mod logged;
pub mod logs;
pub mod mirror;
pub(super) mod mirrored;
pub mod trace;
pub(super) mod traced;
