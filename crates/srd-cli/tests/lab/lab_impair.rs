//! `srd lab impair` from end to end. Needs root, iproute2 and `/dev/net/tun`; prints which of these
//! are missing.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::ready::{missing_tun, ready};
use serde_json::Value;
use srd_lab::{Fabric, FabricConfig};
use std::process::Command;

#[test]
fn a_command_runs_beside_the_wire_and_figures_say_what_it_did() {
    if !ready(missing_tun()) {
        return;
    }
    // The name contains the process id, because the tests of another checkout may run at the same
    // time.
    let name = format!("wire{}", std::process::id());
    let config = FabricConfig { name_prefix: name.clone(), spines: 1, ..FabricConfig::default() };
    let _fabric = Fabric::up_guarded(config).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("wire.json");
    let srd = env!("CARGO_BIN_EXE_srd");
    // The command sends 1000 datagrams from one port. The shell can send datagrams only in this
    // way.
    let send =
        "exec 3>/dev/udp/198.18.1.1/9; for n in $(seq 1000); do echo $n >&3 || true; done; exit 5";
    let output = Command::new(srd)
        .args(["lab", "impair", "--name", &name, "--loss", "10%"])
        .args(["--delay", "50us..500us", "--jitter", "100us", "--json"])
        .arg(&json)
        .args(["h0.0", "h1.0", "--in", "h0.0", "--"])
        .args(["bash", "-c", send])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert!(error.contains("h0.0 to h1.0") && error.contains("h1.0 to h0.0"), "{error}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["exit_code"], 5);
    assert_eq!(report["impairment"]["loss_ppm"], 100_000);
    let there = &report["directions"][0];
    let count = |field: &str| there[field].as_u64().unwrap();
    // No program listens at the destination. ICMP errors may end a write early, so fewer than 1000
    // packets may be sent.
    assert!(count("packets") > 300, "{there}");
    assert!((1..=200).contains(&(count("lost") * 1000 / count("packets"))), "{there}");
    assert_eq!(count("paths_used"), 1);
    let ends = ["delivered", "lost", "overflowed", "refused", "under_way"].map(count);
    assert_eq!(ends.iter().sum::<u64>(), count("packets"));
}
