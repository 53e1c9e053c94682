//! Tests of the tables that are compiled from clouds. They are compared with the reference
//! evaluation ([`srd_vpc::judge`]), which reads all objects again for each packet.

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
