//! Clouds compiled into rules, beside the walk over all objects.

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
