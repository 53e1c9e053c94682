//! The summary at the end of `make test`: tests that did not run are counted and named, and in CI a
//! test that could not run is a failure.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::io::Write;
use std::process::{Command, Stdio};

/// What the summary says of an output, and whether it is content.
fn summary(output: &str, ci: bool) -> (String, bool) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/test");
    let mut child = Command::new(script)
        .arg("--summary")
        .env("CI", ci.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(output.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

const SKIPPED: &str = "test a::b ... ok\n\nsuccesses:\n\n---- a::b stdout ----\n\
                       skipped: there is no /dev/net/tun\n\n\nsuccesses:\n    a::b\n\n\
                       test result: ok. 1 passed\n";

#[test]
fn skipped_tests_are_named_and_what_others_printed_is_left_out() {
    let output = "test a::b ... ok\ntest c ... FAILED\n\nsuccesses:\n\n---- a::b stdout ----\n\
                  skipped: there is no /dev/net/tun\n\n---- d stdout ----\nhello\n\n\n\
                  successes:\n    a::b\n\nfailures:\n\n---- c stdout ----\nskipped: not this\n\n\
                  test result: FAILED. 1 passed; 1 failed\n";
    let (said, _) = summary(output, false);
    assert!(said.ends_with("skipped tests: 1\n  a::b: there is no /dev/net/tun\n"), "{said}");
    assert!(said.contains("test c ... FAILED") && said.contains("---- c stdout"), "{said}");
    assert!(!said.contains("hello"), "{said}");
    assert!(summary("test result: ok\n", false).0.ends_with("skipped tests: none\n"));
}

#[test]
fn a_skipped_test_fails_the_run_in_ci_and_nowhere_else() {
    assert!(summary(SKIPPED, false).1);
    let (said, content) = summary(SKIPPED, true);
    assert!(!content && said.contains("a::b: there is no /dev/net/tun"), "{said}");
    assert!(summary("test result: ok\n", true).1);
}

#[test]
fn tests_on_demand_are_named_and_fail_nothing() {
    let output = "test slow ... ignored, takes minutes\ntest a ... ignored\ntest b ... ok\n";
    let (said, content) = summary(output, true);
    assert!(said.contains("tests on demand: 2\n  slow: takes minutes\n  a\n"), "{said}");
    assert!(content && said.contains("test b ... ok"), "{said}");
}
