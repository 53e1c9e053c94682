//! ENA Express as a service on an ordinary Linux machine: everything about `srd up` that is not
//! a packet.
//!
//! ```text
//!   srd.toml --> config ----------------------------+
//!                                                   v
//!   srd status ---> control/server --- Command ---> data plane, one thread
//!   Prometheus ---> metrics/server --- Command --->   (owns every packet)
//!   srd capture --> control/server <-- packets ---- capture/tap
//! ```
//!
//! The data plane belongs to one thread, which nothing here may keep waiting: requests reach it
//! through a bounded channel ([`plane`]), answers go back through one that holds exactly one,
//! and captured packets are dropped and counted rather than waited for.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | the file `srd.toml`: read, checked, compared |
//! | [`keys`] | private, public and preshared keys, and the files that hold them |
//! | [`plane`] | what the rest may ask of the data plane |
//! | [`snapshot`] | the state of the data plane, for people and machines |
//! | [`units`] | rates as people write them |

#![forbid(unsafe_code)]

pub mod config;
pub mod keys;
pub mod netconf;
pub mod plane;
mod privileges;
mod routing;
pub mod run;
pub mod snapshot;
pub mod units;
