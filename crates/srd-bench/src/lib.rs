//! Measurements over a network of namespaces ([`srd_lab`]): the kernel's own TCP, and real programs
//! with and without SRD.
//!
//! | module | contents |
//! |---|---|
//! | [`demo`] | the demonstration: five parts that compare kernel TCP with SRD |
//! | [`tcp`] | measurements of kernel TCP and MPTCP: incast, one flow, failover |
//! | [`experiment`] | measurements of real programs over each transport in turn |
//! | [`compare`] | measures a command of the user over each transport in turn |
//! | [`talk`] | instances of a cloud on this machine, and figures of a talk on EC2's network |

pub mod compare;
pub mod demo;
pub mod experiment;
pub mod talk;
pub mod tcp;
