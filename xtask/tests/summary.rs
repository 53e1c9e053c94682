//! The summary at the end of `make test`: tests that could not run are counted and named.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::io::Write;
use std::process::{Command, Stdio};

fn summary(output: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/test");
    let mut child = Command::new(script)
        .arg("--summary")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(output.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn skipped_tests_are_named_and_what_others_printed_is_left_out() {
    let output = "test a::b ... ok\ntest c ... FAILED\n\nsuccesses:\n\n---- a::b stdout ----\n\
                  skipped: there is no /dev/net/tun\n\n---- d stdout ----\nhello\n\n\n\
                  successes:\n    a::b\n\nfailures:\n\n---- c stdout ----\nskipped: not this\n\n\
                  test result: FAILED. 1 passed; 1 failed\n";
    let said = summary(output);
    assert!(said.ends_with("skipped tests: 1\n  a::b: there is no /dev/net/tun\n"), "{said}");
    assert!(said.contains("test c ... FAILED") && said.contains("---- c stdout"), "{said}");
    assert!(!said.contains("hello"), "{said}");
    assert!(summary("test result: ok\n").ends_with("skipped tests: none\n"));
}
