//! Tests of the measuring program `ranks`, with an MPI that is installed on this machine.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod ranks;
