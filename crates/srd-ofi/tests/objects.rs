//! An application in C opens every object through libfabric.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Provider, is_here, lacks};

#[test]
fn an_application_opens_and_closes_every_object() {
    if !is_here("cc", "gcc") {
        return;
    }
    if !Path::new("/usr/include/rdma/fabric.h").exists() {
        return lacks("libfabric's headers (Debian: libfabric-dev)");
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("objects");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects.c");
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Wextra", "-Wno-sign-compare", "-o"]).arg(&program).arg(source);
    let output = compile.arg("-lfabric").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let provider = Provider::new();
    let mut run = Command::new(&program);
    run.env("FI_PROVIDER_PATH", provider.library().parent().unwrap());
    run.env("FI_PROVIDER", "srd");
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
