//! Queue of the frames that wait for one peer. `flow` contains the frames of a flow, `tenant` the
//! flows of a tenant, and `scheduler` all tenants; it selects the next frame. `codel` decides which
//! frames are marked, and `fattest` finds the largest flow, from which a full queue drops frames.

mod codel;
mod fattest;
mod flow;
pub(crate) mod scheduler;
mod tenant;
