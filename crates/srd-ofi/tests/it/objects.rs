//! An application in C opens every object through libfabric.

use std::path::Path;
use std::process::Command;

use crate::support::{Provider, has_headers, is_here};

#[test]
fn an_application_opens_and_closes_every_object() {
    if !is_here("cc", "gcc") || !has_headers() {
        return;
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
