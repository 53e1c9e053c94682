//! Tests of experiments and faults in fabrics of network namespaces.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod lab_all;
mod lab_impair;
mod lab_run;
mod mpi;
mod nfs_outages;
mod quiet;
#[path = "../../../srd-lab/tests/support/ready.rs"]
mod ready;
