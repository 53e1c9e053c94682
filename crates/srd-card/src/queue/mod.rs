//! Frames that wait for one peer: `flow` those of a flow, `tenant` the flows of a tenant,
//! `scheduler` the order in which all go, `codel` the law that marks them, `fattest` what holds
//! most.

mod codel;
mod fattest;
mod flow;
pub(crate) mod scheduler;
mod tenant;
