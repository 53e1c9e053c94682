//! Tests of the tables that are compiled from clouds, compared with the walk over all objects.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod agree;
mod concern;
mod deltas;
#[path = "../generate/mod.rs"]
mod generate;
#[path = "../large/mod.rs"]
mod large;
mod rules;
mod scale;
