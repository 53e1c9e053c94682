//! The `srd` command: wiring only.
fn main() {}
