//! A leaf-spine datacenter fabric on one machine, built from Linux network namespaces.
//!
//! Every host, leaf and spine is a network namespace, every cable is a veth pair, and every port is
//! a token bucket with a byte-limited drop-tail queue. Leaves choose a spine by hashing the
//! 5-tuple, as a real switch does; a spine can be made to drop packets silently, which is the
//! failure that multipath transports are made for. The hosts run the real kernel and real programs.
//!
//! An example, which needs root:
#![doc = concat!("```ignore\n", include_str!("../examples/fabric.rs"), "```\n")]
//!
//! | module | content |
//! |---|---|
//! | `build` | a fabric: how it is configured ([`config`]), built and removed ([`fabric`]) |
//! | `programs` | programs in the hosts of a fabric ([`exec`], [`running`]) |
//! | `faults` | faults ([`fault`], [`impair`]), counters ([`status`]) and probes ([`probe`]) |
//! | [`express`] | `srd up` in the hosts |
//! | [`random`] | random numbers from a seed |
//! | `sys` | all `unsafe` code of this crate |
//! | [`requirements`](mod@requirements) | missing requirements of this machine, and how to install them |
//!
//! Invariants: nothing is ever created or deleted outside of namespaces called `srdlab-<name>-...`;
//! the state file is written before the first namespace exists and removed after the last one is
//! gone, so after a crash at any time a cleanup is possible.
//!
//! Limits: there is no propagation delay except that of [`impair`], and the machine's CPU bounds
//! the total rate: about 5 Gb/s over all hosts on two cores at MTU 9000.

mod build;
pub mod express;
mod faults;
mod programs;
pub mod random;
pub mod requirements;
mod sys;

pub use build::config::{ConfigError, FabricConfig};
pub use build::fabric::{DownReport, Fabric};
pub use build::guard::{DirectoryGuard, FabricGuard};
pub use build::id::{Family, HostId, LinkId, Network};
pub use build::{address, config, fabric, guard, id, plan, state};
pub use faults::fault::{Faults, Lost};
pub use faults::impair::Impairment;
pub use faults::status::{PortKind, PortStatus, Status};
pub use faults::{counters, fault, impair, probe, status};
pub use programs::{command, enter, exec, namespace, priority, running};
pub use requirements::{Missing, requirements};
