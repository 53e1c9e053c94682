//! Programs that run on a cluster.
//!
//! | module | content |
//! |---|---|
//! | `hadoop` | HDFS, YARN and MapReduce |
//! | `objects` | an object store and its clients |
//! | `records` | Spark, Dask: sorts and joins |
//! | `training`, `mpi` | data-parallel training; MPI over kernel TCP and over SRD |
//! | `shuffle` | all-to-all traffic |
//! | `machines`, `fetched` | host names for these programs; programs from their registries |

pub(super) mod fetched;
pub(super) mod hadoop;
pub(super) mod machines;
pub(super) mod mpi;
pub(super) mod objects;
pub(super) mod records;
pub(super) mod shuffle;
pub(super) mod training;
