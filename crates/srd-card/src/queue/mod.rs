//! Frames that wait for one peer: `flow` has the frames of a flow, `tenant` the flows of a tenant,
//! `scheduler` the order of all frames, `codel` the law that marks frames, `fattest` the largest
//! flow.

mod codel;
mod fattest;
mod flow;
pub(crate) mod scheduler;
mod tenant;
