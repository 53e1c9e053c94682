//! Tests of the command line of `cargo xtask`.

use std::process::{Command, Output};

fn xtask(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(words).output().expect("it was just built")
}

#[test]
fn help_names_every_chore() {
    let help = String::from_utf8_lossy(&xtask(&["--help"]).stdout).into_owned();
    let named = |chore: &&str| help.lines().any(|line| line.trim_start().starts_with(*chore));
    let chores =
        ["tidy ", "soak ", "soak-express ", "test ", "instructions ", "hostile ", "ec2-model "];
    assert!(chores.iter().all(named), "{help}");
}

/// Regression: a soak of no seeds, no hours or no packets passed.
#[test]
fn regression_a_check_of_nothing_is_bad_usage() {
    for words in [["soak", "--seeds"], ["soak-express", "--hours"], ["hostile", "--packets"]] {
        let output = xtask(&[words[0], words[1], "0"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(words[1]), "{error}");
    }
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
