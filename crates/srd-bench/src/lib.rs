//! Measurements over a network of namespaces ([`srd_lab`]): the kernel's own TCP, and real programs
//! with and without SRD. `srd demo`, `srd lab run`, `srd compare` and `srd card lab` call it.
//!
//! | module | contents |
//! |---|---|
//! | [`demo`] | the demonstration: five parts that compare kernel TCP with SRD |
//! | [`tcp`] | measurements of kernel TCP and MPTCP: incast, one flow, failover |
//! | [`experiment`] | measurements of real programs over each transport in turn |
//! | [`compare`] | measures a command of the user over each transport in turn |
//! | [`talk`] | the experiments of the AWS talk NET402, with instances on this machine |

pub mod compare;
pub mod demo;
pub mod experiment;
pub mod talk;
pub mod tcp;
