//! Is this system fit for SRD, and what has to be changed if it is not?
//!
//! | module | what |
//! |---|---|
//! | [`check`] | rules for the settings of a system, and how they are changed |
//! | [`mpi_check`] | whether MPI will use SRD through libfabric, here and on other machines |
//! | [`mpi`] | MPIs of this machine: what they can do, and how their jobs are started |
//!
//! Looking never writes; only `fix` does, as root.

pub mod check;
mod libfabric;
pub mod mpi;
pub mod mpi_check;
