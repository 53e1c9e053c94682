//! DPDK's testpmd as a guest: its virtio-user driver is a front end of vhost-user.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use super::machine::{Machine, Running};

/// The hardware address of the subnet's gateway, to which the guest sends all packets.
const GATEWAY: &str = "0a:53:52:44:00:01";

/// Whether testpmd is installed; otherwise prints how to install it.
pub(crate) fn has_testpmd() -> bool {
    let found = Command::new("sh").args(["-c", "command -v dpdk-testpmd"]).output();
    let has = found.unwrap().status.success();
    assert!(has || std::env::var_os("CI").is_none(), "dpdk-testpmd belongs to CI");
    if !has {
        println!("skipped: no dpdk-testpmd (apt-get install dpdk-dev)");
    }
    has
}

/// Starts a guest that sends each packet back, with source and destination exchanged in addresses
/// and ports.
pub(crate) fn echo(machine: &Machine, name: &str, socket: &Path, device: &str) -> Running {
    let log = File::create(machine.path(&format!("{name}.log"))).unwrap();
    let queues = device.split("queues=").nth(1).and_then(|text| text.split(',').next()).unwrap();
    let device = format!("net_virtio_user0,path={},{device}", socket.display());
    let mut command = Command::new("dpdk-testpmd");
    command
        .args(["--no-huge", "-m", "128", "--lcores=0@0-1,1@0-1", "--no-pci", "--no-telemetry"])
        .args(["--file-prefix", &format!("{}{name}", machine.prefix)])
        .args(["--vdev", &device, "--", "--total-num-mbufs=4096", "--nb-cores=1"])
        .args([&format!("--rxq={queues}"), &format!("--txq={queues}")])
        .args(["--forward-mode=5tswap", "--auto-start", &format!("--eth-peer=0,{GATEWAY}")]);
    // testpmd runs until its standard input is closed.
    command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
    Running(command.spawn().unwrap())
}

/// Removes the files that testpmd leaves behind if it is killed.
pub(crate) fn clean(machine: &Machine, name: &str) {
    let _ = fs::remove_dir_all(format!("/var/run/dpdk/{}{name}", machine.prefix));
}
