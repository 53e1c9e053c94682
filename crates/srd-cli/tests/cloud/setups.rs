//! Random clouds that boto3 makes by the EC2 API, and real connections between their instances. The
//! program `crates/srd-control/tests/setups` compares the outcome of each connection with the
//! model, and with the documented rules of AWS. Needs root.

use std::path::Path;
use std::process::{Command, Stdio};

use super::control::path_with_python;
use crate::support::machine::*;

/// Number of random clouds. `docs/control.md` has the command for 200.
const SETUPS: &str = "3";

#[test]
fn connections_of_random_clouds_end_as_the_model_and_the_rules_of_aws_predict() {
    if !ready_with_nsenter() {
        return;
    }
    let path = path_with_python();
    let mut boto3 = Command::new("python3");
    boto3.env("PATH", &path).args(["-c", "import boto3"]).stderr(Stdio::null());
    if !boto3.status().is_ok_and(|status| status.success()) {
        println!("skipped: no boto3 (pip install boto3)");
        return;
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../srd-control/tests/setups");
    let mut command = Command::new("timeout");
    command.env("PATH", path).args(["900", "python3"]).arg(program).args(["--srd", SRD]);
    let output = command.args(["--setups", SETUPS]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{error}");
    assert!(
        text.contains(&format!("{SETUPS} set-ups")) && text.contains("\n0 differences"),
        "{text}"
    );
}
