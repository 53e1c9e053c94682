//! Tests of the command line of `cargo xtask`.

use std::process::{Command, Output};

fn xtask(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(words).output().expect("it was just built")
}

#[test]
fn help_names_every_chore() {
    let help = String::from_utf8_lossy(&xtask(&["--help"]).stdout).into_owned();
    assert!(help.contains("tidy") && help.contains("soak"), "{help}");
}

#[test]
fn an_unknown_chore_is_bad_usage() {
    assert_eq!(xtask(&["sweep"]).status.code(), Some(2));
}

#[test]
fn one_seed_of_the_soak_runs() {
    let output = xtask(&["soak", "--seeds", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
