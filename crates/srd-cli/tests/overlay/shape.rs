//! `srd shape` on an interface of a separate namespace. Needs root and `tc`.
#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::process::{Command, Output};

/// A namespace that contains both ends of a veth pair; it is removed when this value is dropped.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "CI runs as root");
            println!("skipped: it needs root");
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

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[test]
fn a_rate_is_set_shown_changed_and_undone() {
    let Some(place) = Namespace::new("a") else { return };
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
fn a_flows_rate_is_set_changed_and_undone() {
    let Some(place) = Namespace::new("b") else { return };
    let before = place.roots();
    // The rate of a flow is limited by `fq` or, on a kernel without it, by classes.
    for (words, flow_bps) in [
        ("--rate 100M --flow 10M", Some(10_000_000)),
        ("--rate 200M --flow 20M", Some(20_000_000)),
        ("--rate 300M", None),
        ("--rate 100M --flow 30M", Some(30_000_000)),
    ] {
        let output = place.run(env!("CARGO_BIN_EXE_srd"), &format!("shape sh0 {words} --json -"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words}: {said}");
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shown["flow_bps"].as_u64(), flow_bps, "{words}: {shown}");
        assert!(shown["rate_bps"].as_u64() >= Some(100_000_000), "{words}: {shown}");
    }
    assert_eq!(place.srd("shape sh0 --off").0, 0);
    assert_eq!(place.roots(), before);
}

/// Returns the number of packets that each class for flows has sent; classes without packets are
/// left out.
fn sent_by_classes(place: &Namespace) -> Vec<u64> {
    let output = place.run("tc", "-s class show dev sh0");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let classes = text.split("class htb ").filter(|class| class.contains("leaf"));
    // A line of the output has the form " Sent 1260 bytes 20 pkt (dropped 0, ...".
    let packets = classes.filter(|class| !class.starts_with("5d:11 ")).filter_map(|class| {
        class.split_whitespace().skip_while(|word| *word != "Sent").nth(3)?.parse().ok()
    });
    packets.filter(|packets| *packets > 0).collect()
}

#[test]
fn a_flow_has_one_class_and_flows_have_many() {
    const FLOWS: u64 = 8;
    const PACKETS: u64 = 20;
    let Some(place) = Namespace::new("h") else { return };
    let shell = |lines: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &place.0, "bash", "-ec", lines]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{lines}: {}", String::from_utf8_lossy(&output.stderr));
    };
    shell(
        "ip link set sh1 up; ip addr add 10.9.0.1/24 dev sh0; \
         ip -6 addr add fd09::1/64 dev sh0 nodad; \
         for to in 10.9.0.2 fd09::2; do \
             ip neigh replace $to lladdr 02:00:00:00:00:09 dev sh0 nud permanent; done",
    );
    let (code, said) = place.srd("shape sh0 --rate 1G --flow 100M");
    assert_eq!(code, 0, "{said}");
    if !said.contains("classes") {
        println!("skipped: this kernel has `fq`, which knows flows by itself");
        return;
    }
    // The kernel itself sends a few packets, so only multiples of a flow's packets count.
    let flows = || sent_by_classes(&place).iter().map(|packets| packets / PACKETS).sum::<u64>();
    for to in ["10.9.0.2", "fd09::2"] {
        let before = flows();
        shell(&format!(
            "for flow in $(seq {FLOWS}); do exec 3<>/dev/udp/{to}/4000; \
             for packet in $(seq {PACKETS}); do echo x >&3; done; exec 3>&-; done"
        ));
        let sent = sent_by_classes(&place);
        assert_eq!(flows() - before, FLOWS, "{to}: {sent:?}");
        let classes = sent.iter().filter(|packets| **packets >= PACKETS).count();
        assert!(classes > 4, "{to}: {sent:?}");
    }
}

#[test]
fn what_others_have_set_stays() {
    let Some(place) = Namespace::new("c") else { return };
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
    let Some(place) = Namespace::new("d") else { return };
    for words in ["shape nowhere", "shape sh0 --rate 10M --flow 20M", "shape sh0 --flow 1M"] {
        let (code, said) = place.srd(words);
        assert_eq!(code, 2, "{words}: {said}");
    }
    let (code, said) = place.srd("shape sh0 --rate 10M --dry-run");
    assert!(code == 0 && said.starts_with("tc qdisc replace dev sh0 root"), "{said}");
    assert!(!place.roots().contains("htb"));
}

#[test]
fn regression_several_at_a_time_leave_one_of_their_rates() {
    let Some(place) = Namespace::new("e") else { return };
    let before = place.roots();
    let all: Vec<(i32, String)> = std::thread::scope(|scope| {
        let place = &place;
        let one = |n: u32| scope.spawn(move || place.srd(&format!("shape sh0 --rate {n}M")));
        let running: Vec<_> = (11..19).map(one).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(all.iter().all(|(code, _)| *code == 0), "{all:?}");
    let (_, said) = place.srd("shape sh0");
    assert!((11..19).any(|n| said.contains(&format!("sends at most {n}.0 Mb/s"))), "{said}");
    assert_eq!(place.srd("shape sh0 --off").0, 0);
    assert_eq!(place.roots(), before);
}

#[test]
fn regression_what_a_killed_command_left_is_said_finished_and_undone() {
    let Some(place) = Namespace::new("f") else { return };
    let before = place.roots();
    for class in [false, true] {
        for end in ["--rate 10M", "--off"] {
            assert!(
                place
                    .run("tc", "qdisc add dev sh0 root handle 5d: htb default 10")
                    .status
                    .success()
            );
            if class {
                let words = "class add dev sh0 parent 5d: classid 5d:10 htb rate 1mbit";
                assert!(place.run("tc", words).status.success());
            }
            let (code, said) = place.srd("shape sh0");
            let expected = if class { "at most 1.0 Mb/s" } else { "ended before it was done" };
            assert!(code == 0 && said.contains(expected), "{said}");
            let (code, said) = place.srd(&format!("shape sh0 {end}"));
            assert_eq!(code, 0, "{said}");
            if end == "--rate 10M" {
                let (_, said) = place.srd("shape sh0");
                assert!(said.contains("at most 10.0 Mb/s, shared out by"), "{said}");
                assert_eq!(place.srd("shape sh0 --off").0, 0);
            }
            assert_eq!(place.roots(), before);
        }
    }
}

#[test]
fn regression_changes_have_json_and_rates_have_bounds() {
    let Some(place) = Namespace::new("g") else { return };
    for (words, shaped) in [("--rate 10M", true), ("--rate 10000G", true), ("--off", false)] {
        let output = place.run(env!("CARGO_BIN_EXE_srd"), &format!("shape sh0 {words} --json -"));
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(shown["shaped"], shaped, "{words}: {shown}");
    }
    for words in ["--rate 7", "--rate 10M --flow 7", "--rate 10M --dry-run --json -"] {
        let (code, said) = place.srd(&format!("shape sh0 {words}"));
        assert_eq!(code, 2, "{words}: {said}");
    }
}

#[test]
fn regression_a_rate_that_is_set_or_undone_is_said_to_programs_too() {
    let Some(place) = Namespace::new("i") else { return };
    let json = |words: &str| -> serde_json::Value {
        let output = place.run(env!("CARGO_BIN_EXE_srd"), words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words}: {said}");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{words}: {error}: {said}"))
    };
    let shown = json("shape sh0 --rate 100M --json -");
    assert_eq!(shown["shaped"], true);
    assert_eq!(shown["rate_bps"], 100_000_000);
    // tc prints this rate as 1Tbit.
    let shown = json("shape sh0 --rate 1000G --json -");
    assert_eq!(shown["rate_bps"], 1_000_000_000_000_u64);
    assert_eq!(json("shape sh0 --off --json -")["shaped"], false);
    assert_eq!(json("shape sh0 --off --json -")["shaped"], false, "nothing to undo");
}

#[test]
fn regression_the_commands_of_a_dry_run_are_those_that_would_run() {
    let Some(place) = Namespace::new("j") else { return };
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
