//! The example of the crate's documentation: a fabric in which a spine fails and recovers.

use std::ffi::OsString;

use srd_lab::{Fabric, FabricConfig, HostId};

fn main() -> anyhow::Result<()> {
    let fabric = Fabric::up_guarded(FabricConfig::default())?; // gone when dropped, also on Ctrl-C
    let argv = ["ping", "-c1", "198.18.1.1"].map(OsString::from);
    let exit_code = fabric.exec(HostId { leaf: 0, host: 0 }, &argv)?;
    assert_eq!(exit_code, 0);
    fabric.fail_spine(2)?;
    fabric.heal_spine(2)
}
