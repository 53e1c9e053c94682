//! Tests of two machines with `srd up` between them.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod compare;
mod eligibility;
mod enrol;
mod families;
mod goodbye;
mod isolation;
mod operate;
mod paths;
mod privileges;
mod reload;
mod routes;
mod shape;
#[path = "../support/mod.rs"]
mod support;
mod take_over;
mod tunnels;
mod up;
#[allow(dead_code, reason = "each test program uses a part")]
#[path = "../../../srd-net/tests/support/veth.rs"]
mod veth;
mod watch;

use veth::cable;
