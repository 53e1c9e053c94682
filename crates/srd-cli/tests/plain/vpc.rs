//! `srd vpc` as its user runs it: on the example of the documentation, and on a file that is wrong.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vpc/web-app.toml")
}

fn srd(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_srd")).arg("vpc").args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn every_connection_of_the_example_ends_as_its_comment_says() {
    let file = example();
    let file = file.to_str().unwrap();
    let cases: &[(&[&str], i32)] = &[
        (&["internet", "web"], 0),
        (&["internet", "web", "--port", "80"], 1),
        (&["internet", "web", "--port", "22"], 0),
        (&["198.51.100.77", "198.51.100.10", "--port", "22"], 1),
        (&["web", "app"], 0),
        (&["internet", "10.0.2.10"], 1),
        (&["app", "internet", "--port", "80"], 0),
        (&["app", "web", "--protocol", "icmp"], 0),
        (&["app", "web", "--protocol", "47"], 1),
        (&["app", "10.0.0.2", "--protocol", "udp", "--port", "53"], 0),
        (&["nothing", "web"], 2),
        (&["internet", "app"], 2),
        (&["web", "app", "--protocol", "sctpp"], 2),
    ];
    for (words, code) in cases {
        let output = srd(&[&["explain", file], *words].concat());
        assert_eq!(output.status.code(), Some(*code), "{words:?}: {output:#?}");
        assert_eq!(output.stderr.is_empty(), *code != 2, "{words:?}: {output:#?}");
    }
}

#[test]
fn a_verdict_names_the_rule_that_made_it_for_people_and_machines() {
    let file = example();
    let file = file.to_str().unwrap();
    let people = srd(&["explain", file, "internet", "web"]);
    let people = text(&people.stdout);
    assert!(people.contains("allowed by \"tcp 443 from 0.0.0.0/0\" of group web"), "{people}");
    assert!(people.contains("; untracked"), "{people}");
    let output = srd(&["explain", file, "internet", "web", "--port", "80", "--json", "-"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["works"], false);
    let steps = value["first"]["steps"].as_array().unwrap();
    assert_eq!(steps.last().unwrap()["passes"], false);
    assert_eq!(value["first"]["remedy"], "add an ingress rule");
}

#[test]
fn a_file_that_is_wrong_is_named_with_its_line_and_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("vpc.toml");
    let good = std::fs::read_to_string(example()).unwrap();
    std::fs::write(&file, good.replace("\"10.0.2.10\"", "\"10.0.3.10\"")).unwrap();
    let output = srd(&["check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    for part in ["vpc.toml:", "10.0.3.10 is not in subnet `app`", "remedy: "] {
        assert!(error.contains(part), "{error}");
    }
    let output = srd(&["check", "/nonexistent/vpc.toml"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_difference_names_the_objects_and_ends_with_one() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (example(), directory.path().join("new.toml"));
    let text_of = std::fs::read_to_string(&old).unwrap();
    let changed = text_of.replace("tcp 443 from group web", "tcp 444 from group web");
    std::fs::write(&new, changed + "\n[group.extra]\n").unwrap();
    let [old, new] = [&old, &new].map(|path| path.to_str().unwrap());
    let same = srd(&["diff", old, old]);
    assert_eq!((same.status.code(), text(&same.stdout)), (Some(0), "no difference\n"));
    let output = srd(&["diff", old, new, "--json", "-"]);
    assert_eq!(output.status.code(), Some(1));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!([
        { "change": "changed", "object": "group app" },
        { "change": "added", "object": "group extra" },
    ]);
    assert_eq!(value, expected);
}

/// Flow logs and mirrors are objects as others are: they are counted, shown, and compared.
#[test]
fn regression_what_observes_is_counted_shown_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (example().with_file_name("observed.toml"), directory.path().join("new.toml"));
    let text_of = std::fs::read_to_string(&old).unwrap();
    let changed = text_of
        .replace("traffic = \"reject\"", "traffic = \"accept\"")
        .replace("vni = 77", "vni = 78")
        .replace("region = \"eu-central-1\"", "region = \"eu-north-1\"");
    std::fs::write(&new, changed).unwrap();
    let [old, new] = [&old, &new].map(|path| path.to_str().unwrap());
    let output = srd(&["diff", old, new]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    for object in ["changed  flow_log refused", "changed  mirror_session web", "changed  region"] {
        assert!(said.contains(object), "{said}");
    }
    let said = text(&srd(&["check", old]).stdout).to_owned();
    assert!(said.contains("3 flow_log, 1 mirror_filter, 1 mirror_target, 1 mirror_s"), "{said}");
    let said = text(&srd(&["show", old]).stdout).to_owned();
    for line in ["flow_log refused", "reject of interface web", "network identifier 77"] {
        assert!(said.contains(line), "{said}");
    }
    assert!(said.contains("internet_gateway door"), "{said}");
}

#[test]
fn usage_and_objects_are_listed() {
    let file = example();
    let file = file.to_str().unwrap();
    let output = srd(&["nau", file, "--json", "-"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Two interfaces with an address each, and a NAT gateway.
    assert_eq!(value[0]["NetworkAddressUsage"], 8);
    let output = srd(&["show", file]);
    assert!(text(&output.stdout).contains("tcp 443 from group web"));
}
