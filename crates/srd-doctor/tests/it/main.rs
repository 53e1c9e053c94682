//! Checks of ranks, with an MPI of this machine.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod ranks;
