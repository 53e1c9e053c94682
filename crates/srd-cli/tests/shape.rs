//! `srd shape` at an interface of a namespace of its own. Needs root and `tc`.
#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::process::{Command, Output};

/// A namespace with the ends of one cable, removed with the test.
struct Place(String);

impl Place {
    fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI runs as root");
            println!("skipped: network namespaces need root");
            return None;
        }
        let place = Self(format!("srd-sh-{name}-{}", std::process::id()));
        let ip = |words: &str| {
            assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
        };
        ip(&format!("netns add {}", place.0));
        ip(&format!("-n {} link add sh0 type veth peer name sh1", place.0));
        ip(&format!("-n {} link set sh0 up", place.0));
        Some(place)
    }

    fn run(&self, program: &str, words: &str) -> Output {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]).args(words.split(' '));
        command.output().unwrap()
    }

    fn srd(&self, words: &str) -> (i32, String) {
        let output = self.run(env!("CARGO_BIN_EXE_srd"), words);
        let both = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8_lossy(&both).into_owned())
    }

    fn roots(&self) -> String {
        let output = self.run("tc", "qdisc show dev sh0");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn a_rate_is_set_shown_changed_and_undone() {
    let Some(place) = Place::new("a") else { return };
    let before = place.roots();
    assert_eq!(place.srd("shape sh0 --off").0, 0, "nothing to undo is no error");
    let (code, said) = place.srd("shape sh0 --rate 100M");
    assert!(code == 0 && said.contains("100"), "{said}");
    for rate in ["100", "200"] {
        let (code, said) = place.srd(&format!("shape sh0 --rate {rate}M"));
        assert_eq!(code, 0, "{said}");
        let output = place.run(env!("CARGO_BIN_EXE_srd"), "shape sh0 --json -");
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shown["shaped"], true);
        assert_eq!(shown["rate_bps"].as_u64().unwrap(), rate.parse::<u64>().unwrap() * 1_000_000);
        assert!(shown["leaf"].is_string(), "{shown}");
    }
    assert_eq!(place.srd("shape sh0 --off").0, 0);
    assert_eq!(place.roots(), before);
}

#[test]
fn a_flows_rate_is_set_or_the_interface_is_as_it_was() {
    let Some(place) = Place::new("b") else { return };
    let before = place.roots();
    let (code, said) = place.srd("shape sh0 --rate 100M --flow 10M");
    if code == 3 {
        assert!(said.contains("lacks the queueing discipline `fq`"), "{said}");
        assert_eq!(place.roots(), before);
        return;
    }
    assert_eq!(code, 0, "{said}");
    let output = place.run(env!("CARGO_BIN_EXE_srd"), "shape sh0 --json -");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["flow_bps"], 10_000_000);
}

#[test]
fn what_others_have_set_stays() {
    let Some(place) = Place::new("c") else { return };
    let set = place.run("tc", "qdisc add dev sh0 root handle 1: htb");
    assert!(set.status.success());
    let before = place.roots();
    let (code, said) = place.srd("shape sh0 --rate 100M");
    assert!(code == 2 && said.contains("which this command has not set"), "{said}");
    assert_eq!(place.srd("shape sh0 --off").0, 0);
    assert_eq!(place.roots(), before);
}

#[test]
fn wrong_words_are_usage() {
    let Some(place) = Place::new("d") else { return };
    for words in ["shape nowhere", "shape sh0 --rate 10M --flow 20M", "shape sh0 --flow 1M"] {
        let (code, said) = place.srd(words);
        assert_eq!(code, 2, "{words}: {said}");
    }
    let (code, said) = place.srd("shape sh0 --rate 10M --dry-run");
    assert!(code == 0 && said.starts_with("tc qdisc replace dev sh0 root"), "{said}");
    assert!(!place.roots().contains("htb"));
}

#[test]
fn regression_a_rate_that_is_set_or_undone_is_said_to_programs_too() {
    let Some(place) = Place::new("e") else { return };
    let json = |words: &str| -> serde_json::Value {
        let output = place.run(env!("CARGO_BIN_EXE_srd"), words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words}: {said}");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{words}: {error}: {said}"))
    };
    let shown = json("shape sh0 --rate 100M --json -");
    assert_eq!(shown["shaped"], true);
    assert_eq!(shown["rate_bps"], 100_000_000);
    // tc prints it as 1Tbit.
    let shown = json("shape sh0 --rate 1000G --json -");
    assert_eq!(shown["rate_bps"], 1_000_000_000_000_u64);
    assert_eq!(json("shape sh0 --off --json -")["shaped"], false);
    assert_eq!(json("shape sh0 --off --json -")["shaped"], false, "nothing to undo");
}

#[test]
fn regression_the_commands_of_a_dry_run_are_those_that_would_run() {
    let Some(place) = Place::new("f") else { return };
    let shell = |lines: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &place.0, "sh", "-ec", lines]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{lines}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let rate = || {
        let output = place.run(env!("CARGO_BIN_EXE_srd"), "shape sh0 --json -");
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        shown["rate_bps"].as_u64()
    };
    let before = place.roots();
    for (rate_m, expected) in [(100, 100_000_000), (200, 200_000_000)] {
        let (code, lines) = place.srd(&format!("shape sh0 --rate {rate_m}M --dry-run"));
        assert_eq!(code, 0, "{lines}");
        shell(&lines);
        assert_eq!(rate(), Some(expected), "{lines}");
    }
    shell(&place.srd("shape sh0 --off --dry-run").1);
    assert_eq!(place.roots(), before);
}
