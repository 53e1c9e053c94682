//! Flow logs and mirrors in cloud files.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use srd_vpc::id::*;
use srd_vpc::object::*;
use srd_vpc_file::{Kind, VpcFile, parse};

const BASE: &str = r#"account = "123456789010"
region = "eu-central-1"
[vpc.main]
cidr = ["10.0.0.0/16"]
[subnet.s]
cidr = "10.0.1.0/24"
[interface.e]
subnet = "s"
address = ["10.0.1.10"]
[interface.f]
subnet = "s"
address = ["10.0.1.11"]
"#;
const LINES: usize = 12;

fn read(text: &str) -> VpcFile {
    parse(&format!("{BASE}{text}"), Path::new("vpc.toml")).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Checks that each text, appended to `BASE`, is refused with the error at the given line, counted
/// from the end of `BASE`.
fn refused(cases: &[(&str, usize, &str)]) {
    for (text, line, what) in cases {
        let error = parse(&format!("{BASE}{text}\n"), Path::new("vpc.toml")).expect_err(text);
        assert!(error.what.contains(what), "{text}: {error}");
        assert_eq!(error.place.as_ref().unwrap().line, LINES + line, "{text}: {error}");
        assert!(!error.remedy.is_empty(), "{error}");
    }
}

#[test]
fn flow_logs_have_ec2s_defaults() {
    let file = read("[flow_log.a]\ndirectory = \"/var/log/flows\"");
    let log = file.world.flow_logs.values().next().unwrap();
    let vpc = VpcId(file.names.number(Kind::Vpc, "main").unwrap());
    assert_eq!((log.resource, log.traffic), (Logged::Vpc(vpc), LoggedTraffic::All));
    assert_eq!((log.interval, log.format), (600, LogFormat::Text));
    assert_eq!(log.fields(), LogField::DEFAULT);
    assert_eq!(file.world.account.as_deref(), Some("123456789010"));
    assert_eq!(file.world.region.as_deref(), Some("eu-central-1"));
    assert!(log.covers(EniId(1), SubnetId(1), vpc) && !log.covers(EniId(1), SubnetId(1), VpcId(1)));
}

#[test]
fn flow_logs_say_what_and_how() {
    let file = read(
        "[flow_log.a]\ninterface = \"e\"\ntraffic = \"reject\"\ninterval = 60\n\
         format = \"${version} ${pkt-srcaddr}  ${encryption-status}\"\nfiles = \"parquet\"\n\
         directory = \"/x\"\n\
         [flow_log.b]\nsubnet = \"s\"\ntraffic = \"accept\"\nfiles = \"gzip\"\ndirectory = \"/x\"",
    );
    let log = |name: &str| {
        let id = FlowLogId(file.names.number(Kind::FlowLog, name).unwrap());
        file.world.flow_logs[&id].clone()
    };
    let eni = EniId(file.names.number(Kind::Interface, "e").unwrap());
    assert_eq!((log("a").resource, log("a").traffic), (Logged::Eni(eni), LoggedTraffic::Reject));
    assert_eq!((log("a").interval, log("a").format), (60, LogFormat::Parquet));
    let fields = [LogField::Version, LogField::PktSrcaddr, LogField::EncryptionStatus];
    assert_eq!(log("a").fields(), fields);
    let subnet = SubnetId(file.names.number(Kind::Subnet, "s").unwrap());
    assert_eq!((log("b").resource, log("b").format), (Logged::Subnet(subnet), LogFormat::Gzip));
}

#[test]
fn flow_logs_that_cannot_be_are_refused_where_they_stand() {
    refused(&[
        ("[flow_log.a]\nvpc = \"main\"", 1, "missing field"),
        ("[flow_log.a]\ndirectory = \"flows\"", 2, "no absolute path"),
        ("[flow_log.a]\ndirectory = \"/x\"\ninterval = 300", 3, "cannot be 300"),
        ("[flow_log.a]\ndirectory = \"/x\"\ntraffic = \"some\"", 3, "no traffic"),
        ("[flow_log.a]\ndirectory = \"/x\"\nfiles = \"csv\"", 3, "no kind of file"),
        ("[flow_log.a]\ndirectory = \"/x\"\nsubnet = \"t\"", 3, "no subnet `t`"),
        ("[flow_log.a]\ndirectory = \"/x\"\nsubnet = \"s\"\ninterface = \"e\"", 1, "one thing"),
        ("[flow_log.a]\ndirectory = \"/x\"\nformat = \"\"", 3, "without fields"),
        ("[flow_log.a]\ndirectory = \"/x\"\nformat = \"version\"", 3, "no field of a format"),
        ("[flow_log.a]\ndirectory = \"/x\"\nformat = \"${colour}\"", 3, "no field `colour`"),
        ("[flow_log.a]\ndirectory = \"/x\"\nformat = \"${end} ${end}\"", 3, "there already"),
    ]);
    for (text, what) in [("account = \"12\"\n", "no account"), ("region = \"EU\"\n", "no Region")] {
        let error = parse(text, Path::new("vpc.toml")).unwrap_err();
        assert!(error.what.contains(what), "{error}");
    }
}

const MIRROR: &str = r#"[mirror_filter.f]
ingress = [
    "200 accept all from 0.0.0.0/0 to 0.0.0.0/0",
    "100 reject tcp 22 from 0.0.0.0/0 to 0.0.0.0/0",
]
egress = ["1 accept udp 53 source 1024-65535 from 10.0.0.0/16 to 0.0.0.0/0"]
[mirror_target.t]
interface = "f"
"#;

#[test]
fn mirrors_say_what_is_copied_and_where_it_goes() {
    let session = "source = \"e\"\ntarget = \"t\"\nfilter = \"f\"\n";
    let file = read(&format!(
        "{MIRROR}[mirror_session.a]\n{session}number = 1\nvni = 77\npacket_length = 128\n\
         [mirror_session.b]\n{session}number = 2\n"
    ));
    let session = |name: &str| {
        let id = MirrorSessionId(file.names.number(Kind::MirrorSession, name).unwrap());
        file.world.mirror_sessions[&id].clone()
    };
    assert_eq!((session("a").vni, session("a").packet_length), (77, Some(128)));
    assert_eq!(session("b").packet_length, None);
    assert!(session("b").vni <= 0xff_ffff && session("b").vni != 77);
    let filter = &file.world.mirror_filters[&session("a").filter];
    let rules: Vec<_> = filter.rules.iter().map(|r| (r.egress, r.number, r.accept)).collect();
    assert_eq!(rules, [(false, 100, false), (false, 200, true), (true, 1, true)]);
    assert_eq!(filter.rules[2].source_ports, Some((1024, 65535)));
    let target = &file.world.mirror_targets[&session("a").target];
    assert_eq!(target.eni.0, file.names.number(Kind::Interface, "f").unwrap());
}

#[test]
fn mirrors_that_cannot_be_are_refused_where_they_stand() {
    let with = |rest: &str| format!("{MIRROR}[mirror_session.a]\n{rest}");
    let session = |source: &str, more: &str| {
        with(&format!("source = \"{source}\"\ntarget = \"t\"\nfilter = \"f\"\n{more}"))
    };
    let filter = |rule: &str| format!("[mirror_filter.g]\ningress = [{rule}]");
    let many: Vec<String> =
        (1..12).map(|n| format!("\"{n} accept all from ::/0 to ::/0\"")).collect();
    let another = "[mirror_session.b]\nsource = \"e\"\ntarget = \"t\"\nfilter = \"f\"\nnumber = 1";
    let more = |n: u8| another.replace(".b]", &format!(".b{n}]")).replace("= 1", &format!("= {n}"));
    let four = format!("number = 1\n{}\n{}\n{}", more(2), more(3), more(4));
    let cases = [
        (filter("\"1 accept all from 0.0.0.0/0\""), 2, "no rule of a mirror"),
        (filter("\"0 accept all from ::/0 to ::/0\""), 2, "no rule of a mirror"),
        (filter("\"1 allow all from ::/0 to ::/0\""), 2, "no rule of a mirror"),
        (filter("\"1 accept all from 0.0.0.0/0 to ::/0\""), 2, "no rule of a mirror"),
        (filter("\"1 accept icmp source 7 from ::/0 to ::/0\""), 2, "no rule of a mirror"),
        (filter(&many[..2].join(", ").replace("2 acc", "1 acc")), 2, "there already"),
        (filter(&many.join(", ")), 2, "at most 10"),
        (session("f", "number = 1"), 10, "not both"),
        (session("e", "number = 0"), 13, "cannot be 0"),
        (session("e", "number = 1\nvni = 16777216"), 14, "cannot be 16777216"),
        (session("e", "number = 1\npacket_length = 0"), 14, "cannot be 0"),
        (session("e", &format!("number = 1\n{another}")), 18, "cannot be 1"),
        (session("e", &four), 25, "at most 3"),
        (
            with("source = \"e\"\ntarget = \"x\"\nfilter = \"f\"\nnumber = 1"),
            11,
            "no mirror_target",
        ),
        ("[mirror_target.t]\ninterface = \"x\"".into(), 2, "no interface"),
    ];
    for (text, line, what) in &cases {
        refused(&[(text, *line, what)]);
    }
}

#[test]
fn the_example_of_the_documentation_is_valid() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vpc/observed.toml");
    let file = srd_vpc_file::read(&example).unwrap();
    assert_eq!((file.world.flow_logs.len(), file.world.mirror_sessions.len()), (3, 1));
}
