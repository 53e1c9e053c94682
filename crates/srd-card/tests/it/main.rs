//! Tests of the card through its public interface: packets of guests and of peers go in; verdicts,
//! packets and counters come out.

#![allow(clippy::unwrap_used)] // a test may fail loudly

#[path = "../../../../fuzz/bodies/agree/mod.rs"]
mod agree;
mod agreement;
mod asking;
mod batches;
#[path = "../../../../fuzz/bodies/card/mod.rs"]
mod bodies;
mod card_example;
mod chance;
mod concern;
mod corpus;
mod express_example;
mod flow_ceiling;
mod flow_logs;
mod fragments;
mod gate_example;
#[path = "../../../srd-vpc/tests/generate/mod.rs"]
mod generate;
mod isolation;
#[path = "../lane/mod.rs"]
mod lane;
mod limits;
mod mirrors;
mod oversize;
mod peers;
mod private_nat;
mod reference;
mod rides;
#[path = "../../../../fuzz/bodies/seeds.rs"]
mod seeds;
mod shards;
mod traces;
mod vpc;
mod vpc_attacks;
mod waiting;
mod workers;
