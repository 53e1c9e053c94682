//! Measurements over the fabric of [`srd_lab`]: the kernel's own TCP, and real programs with and
//! without SRD.
//!
//! | module | what |
//! |---|---|
//! | [`demo`] | the demonstration: three measurements and a program, TCP beside SRD |
//! | [`tcp`] | kernel TCP and MPTCP: incast, one flow, failover |
//! | [`experiment`] | real programs, over every transport in turn |
//! | [`compare`] | a command of the user's own, over every transport in turn |
//! | [`talk`] | instances of a cloud, beside the figures of a talk on EC2's network |

pub mod compare;
pub mod demo;
pub mod experiment;
pub mod talk;
pub mod tcp;
