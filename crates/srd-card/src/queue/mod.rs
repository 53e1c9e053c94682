//! Frames that wait for one peer: `scheduler` the order in which they go, `codel` the law that
//! marks them, `fattest` the flow that holds most.

mod codel;
mod fattest;
pub(crate) mod scheduler;
mod tenant;
