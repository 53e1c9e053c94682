//! Is this system fit for SRD, and what has to be changed if it is not?
//!
//! | module | what |
//! |---|---|
//! | [`mpi`] | MPIs of this machine: what they can do, and how their jobs are started |
//!
//! Looking never writes.

mod libfabric;
pub mod mpi;
