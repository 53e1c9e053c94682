//! Large and hostile files: each is read or refused in time about linear in its number of objects.
//! With quadratic time these tests would not end.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;

use srd_vpc_file::parse;

const BASE: &str = "[vpc.main]\ncidr = [\"10.0.0.0/16\", \"fd00::/56\"]\n\
                    [subnet.s]\ncidr = \"10.0.0.0/16\"\nipv6_cidr = \"fd00::/64\"\n";

fn refused(text: &str) -> String {
    parse(text, Path::new("vpc.toml")).unwrap_err().to_string()
}

#[test]
fn regression_a_name_as_long_as_a_file_is_compared_with_none() {
    let mut text = String::from(BASE);
    for n in 0..5_000 {
        writeln!(text, "[group.g{}{n}]", "x".repeat(200)).unwrap();
    }
    let strange = "y".repeat(3_000_000);
    writeln!(text, "[group.z]\ningress = [\"all from group {strange}\"]").unwrap();
    assert!(refused(&text).contains("there is no group `yyy"));
}

#[test]
fn regression_interfaces_are_not_compared_with_each_other() {
    let mut text = String::from(BASE);
    let first = u32::from(Ipv4Addr::new(10, 0, 1, 0));
    for n in 0..40_000 {
        let address = Ipv4Addr::from(first + n);
        let at = format!("instance = \"i{n}\"");
        write!(text, "[instance.i{n}]\ntype = \"m5.large\"\n").unwrap();
        write!(text, "[interface.e{n}]\nsubnet = \"s\"\naddress = [\"{address}\"]\n{at}\n")
            .unwrap();
    }
    let file = parse(&text, Path::new("vpc.toml")).unwrap();
    assert_eq!(file.world.enis.len(), 40_000);
    text += "[interface.last]\nsubnet = \"s\"\naddress = [\"10.0.1.7\"]\n";
    assert!(refused(&text).contains("10.0.1.7 belongs to interface `e7`"));
}

#[test]
fn regression_addresses_of_one_interface_are_not_compared_with_each_other() {
    let mut text = format!("{BASE}[interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.1\"");
    for n in 16..100_000 {
        write!(text, ", \"fd00::{:x}:{:x}\"", n >> 16, n & 0xffff).unwrap();
    }
    assert!(parse(&format!("{text}]\n"), Path::new("vpc.toml")).is_ok());
    assert!(refused(&format!("{text}, \"fd00::10\"]\n")).contains("this address stands twice"));
}

#[test]
fn regression_elastic_addresses_are_not_compared_with_each_other() {
    let mut text = String::from(BASE);
    for n in 0..100_000 {
        let public = Ipv4Addr::from(0x0100_0000 + n);
        write!(text, "[elastic_address.e{n}]\npublic = \"{public}\"\n").unwrap();
    }
    assert!(parse(&text, Path::new("vpc.toml")).is_ok());
    text += "[elastic_address.last]\npublic = \"1.0.0.9\"\n";
    assert!(refused(&text).contains("1.0.0.9 is another elastic address already"));
}

#[test]
fn regression_rules_are_not_compared_with_each_other() {
    let mut text = format!("{BASE}[group.g]\ningress = [");
    for n in 0..100_000u32 {
        write!(text, "\"all from {}/32\", ", Ipv4Addr::from(0x1400_0000 + n)).unwrap();
    }
    assert!(refused(&format!("{text}]\n")).contains("100000 rules in one direction"));
    assert!(
        refused(&format!("{text}\"all from 20.0.0.5/32\"]\n"))
            .contains("this rule is there already")
    );
}

#[test]
fn regression_a_cloud_has_at_most_fifty_blocks() {
    let blocks = |count: u32| {
        let all: Vec<String> = (0..count).map(|n| format!("\"10.{n}.0.0/16\"")).collect();
        format!("[vpc.main]\ncidr = [{}]\n", all.join(", "))
    };
    assert!(parse(&blocks(50), Path::new("vpc.toml")).is_ok());
    assert!(refused(&blocks(51)).contains("at most 50 blocks"));
}

#[test]
fn regression_a_prefix_is_delegated_once() {
    let text = format!(
        "{BASE}[interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.1\"]\n\
         prefixes = [\"10.0.2.0/28\", \"10.0.2.0/28\"]\n"
    );
    assert!(refused(&text).contains("part of this prefix"));
}
