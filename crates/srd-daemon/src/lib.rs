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
//! | [`capture`] | packets for Wireshark |
//! | [`config`] | the file `srd.toml`: read, checked, compared |
//! | [`control`] | the control socket, both sides |
//! | [`hooks`] | commands of the operator's at the start and the end |
//! | [`keys`] | private, public and preshared keys, and the files that hold them |
//! | [`metrics`] | figures for Prometheus, and a page for people |
//! | [`notify`] | what systemd is told |
//! | [`plane`] | what the rest may ask of the data plane |
//! | [`snapshot`] | the state of the data plane, for people and machines |
//! | [`units`] | rates as people write them |

#![forbid(unsafe_code)]

pub mod capture;
pub mod config;
pub mod control;
#[cfg(test)]
mod fake_plane;
pub mod hooks;
pub mod keys;
pub mod metrics;
pub mod netconf;
pub mod notify;
pub mod plane;
mod privileges;
mod routing;
pub mod run;
pub mod snapshot;
pub mod units;
