//! Checks whether this system is suitable for SRD, and which changes it needs.
//!
//! | module | contents |
//! |---|---|
//! | [`check`] | rules for the settings of a system, and fixes |
//! | [`mpi_check`] | checks that MPI will use SRD through libfabric, here and on other machines |
//! | [`mpi`] | MPIs of this machine: their features, and the launch of their jobs |
//! | `libfabric` | the offers of a libfabric |
//!
//! Checking never writes; only `fix` does, as root.

pub mod check;
mod libfabric;
pub mod mpi;
pub mod mpi_check;
