//! Every error names its line, its cause and a remedy.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::Path;

use srd_vpc_file::parse;

const BASE: &str = "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n[subnet.s]\ncidr = \"10.0.1.0/24\"\n";

#[test]
fn what_ec2_would_refuse_is_refused_where_it_stands() {
    let eni = "[interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.10\"]\n";
    let cases: &[(&str, usize, &str)] = &[
        ("[subnet.t]\ncidr = \"10.0.1.128/25\"", 6, "overlaps"),
        ("[subnet.t]\ncidr = \"10.1.0.0/24\"", 6, "lies in none"),
        ("[subnet.t]\ncidr = \"10.0.2.0/29\"", 6, "16 to 28 bits"),
        ("[subnet.t]\ncidr = \"10.0.2.0/24\"\nacl = \"x\"", 7, "no acl `x`"),
        ("[subnet.t]\ncidr = \"10.0.2.0/24\"\ncolour = 1", 7, "unknown field"),
        ("[interface.e]\nsubnet = \"S\"\naddress = []", 6, "no subnet `S`"),
        ("[interface.e]\nsubnet = \"s\"\naddress = []", 5, "needs an IPv4 address"),
        ("[interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.3\"]", 7, "reserved"),
        ("[interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.255\"]", 7, "reserved"),
        ("[interface.e]\nsubnet = \"s\"\naddress = [\"10.0.2.9\"]", 7, "is not in subnet"),
        (
            "[interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.9\"]\nudp_timeout = 61",
            8,
            "cannot be 61",
        ),
        (
            "[interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.9\"]\nexpress_udp = true",
            8,
            "needs `express`",
        ),
        (
            "[interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.9\"]\nexpress = true",
            5,
            "belongs to the attachment",
        ),
        ("[acl.a]\ningress = [\"40000 allow all from 0.0.0.0/0\"]", 6, "no number"),
        ("[acl.a]\ningress = [\"1 allow all from bogus\"]", 6, "no block"),
        (
            "[acl.a]\ningress = [\"1 allow all from ::/0\", \"1 deny all from ::/0\"]",
            6,
            "there already",
        ),
        ("[group.g]\ningress = [\"tcp 80 from group h\"]", 6, "no group `h`"),
        ("[group.g]\ningress = [\"all from ::/0\", \"all from ::/0\"]", 6, "there already"),
        ("[route_table.r]\nroutes = [\"169.254.169.0/24 to blackhole\"]", 6, "services"),
        ("[route_table.r]\nroutes = [\"10.0.1.0/24 to blackhole\"]", 6, "inside the cloud"),
        ("[route_table.r]\nroutes = [\"0.0.0.0/0 to gateway g\"]", 6, "no target"),
        (
            "[route_table.r]\nroutes = [\"1.0.0.0/8 to blackhole\", \"1.0.0.0/8 to blackhole\"]",
            6,
            "already",
        ),
        (
            "[route_table.r]\nroutes = [\"1.0.0.0/8 to blackhole propagated\", \
             \"1.0.0.0/8 to blackhole propagated\"]",
            6,
            "already",
        ),
        (
            "[prefix_list.p]\nentries = [\"1.0.0.0/8\"]\n[route_table.r]\n\
             routes = [\"list p to blackhole propagated\"]",
            8,
            "never propagated",
        ),
        ("[vpc.b]\ncidr = [\"10.1.0.0/16\"]\ndhcp_options = \"x\"", 7, "no dhcp_options `x`"),
        ("[dhcp_options.d]\ndomain_name = \"a..b\"", 6, "no domain name"),
        ("[dhcp_options.d]\ndomain_name = \"\"", 6, "no domain name"),
        ("[dhcp_options.d]\nname_servers = [\"one\"]", 6, "no address of a server"),
        ("[dhcp_options.d]\nntp_servers = [\"AmazonProvidedDNS\"]", 6, "no address of a server"),
        ("[dhcp_options.d]\nname_servers = [\"0.0.0.0\"]", 6, "no address of a server"),
        (
            "[dhcp_options.d]\nname_servers = [\"AmazonProvidedDNS\", \"1.1.1.1\"]",
            6,
            "beside other resolvers",
        ),
        ("[dhcp_options.d]\nname_servers = [\"1.1.1.1\", \"1.1.1.1\"]", 6, "already"),
        (
            "[dhcp_options.d]\nntp_servers = [\"1.1.1.1\", \"1.1.1.2\", \"1.1.1.3\", \
             \"fd00::1\", \"1.1.1.4\", \"1.1.1.5\"]",
            6,
            "more than 4 time servers",
        ),
        ("[dhcp_options.d]\nntp = []", 6, "unknown field"),
        ("[internet_gateway.a]\n[internet_gateway.b]", 6, "already"),
        ("[prefix_list.p]\nentries = [\"1.0.0.0/8\", \"::/0\"]", 6, "one family"),
        ("[placement.p]\nstrategy = \"near\"", 6, "no strategy"),
        ("[vpc.\"a b\"]\ncidr = [\"10.1.0.0/16\"]", 5, "can be no name"),
        ("[vpc.b]\ncidr = [\"10.0.0.0/8\"]", 6, "16 to 28 bits"),
        ("[vpc.b]\ncidr = [\"10.1.0.0/16\"]\n[acl.a]", 7, "several clouds"),
        (
            "[elastic_address.a]\npublic = \"1.2.3.4\"\n[elastic_address.b]\npublic = \"1.2.3.4\"",
            8,
            "already",
        ),
        ("[oops]", 5, "unknown field"),
        ("= 1", 5, ""),
    ];
    for (text, line, what) in cases {
        let text = format!("{BASE}{text}\n");
        let error = parse(&text, Path::new("vpc.toml")).expect_err(&text);
        assert!(error.what.contains(what), "{text}: {error}");
        let place = error.place.as_ref().unwrap_or_else(|| panic!("{text}: {error}"));
        assert_eq!(place.line, *line, "{text}: {error}");
        assert!(!error.remedy.is_empty(), "{error}");
    }
    let twice = format!("{BASE}{eni}[interface.f]\nsubnet = \"s\"\naddress = [\"10.0.1.10\"]\n");
    let error = parse(&twice, Path::new("vpc.toml")).unwrap_err();
    assert!(error.what.contains("belongs to interface `e`"), "{error}");
}

/// The error was an unknown field.
#[test]
fn regression_a_file_of_settings_is_named_as_such() {
    let error = parse("[cloud]\nvpc = \"a.toml\"\n", Path::new("/etc/srd0.toml")).unwrap_err();
    assert!(error.what.contains("this is a file of settings"), "{error}");
    assert!(error.remedy.contains("srd card up -c /etc/srd0.toml"), "{error}");
}

#[test]
fn a_name_that_is_almost_right_is_suggested() {
    let text = format!("{BASE}[interface.e]\nsubnet = \"ss\"\naddress = []\n");
    let error = parse(&text, Path::new("vpc.toml")).unwrap_err();
    assert_eq!(error.remedy, "did you mean `s`?");
}

#[test]
fn quotas_count_prefix_lists_with_all_that_they_may_have() {
    let list = "[prefix_list.p]\nentries = [\"1.0.0.0/8\"]\nmax_entries = 600\n";
    let mut groups = String::new();
    for (name, entries) in [("g", 2), ("h", 1)] {
        writeln!(groups, "[group.{name}]").unwrap();
        let rules: Vec<_> =
            (0..entries).map(|n| format!("\"tcp {} from list p\"", n + 1)).collect();
        writeln!(groups, "ingress = [{}]", rules.join(", ")).unwrap();
    }
    let text = format!("{BASE}{list}{groups}");
    let error = parse(&text, Path::new("vpc.toml")).unwrap_err();
    assert!(error.what.starts_with("1200 rules"), "{error}");
    // Each group alone is within the quota; two of them at one interface exceed it.
    let groups =
        "[group.g]\ningress = [\"all from list p\"]\n[group.h]\ningress = [\"all from list p\"]\n";
    let eni = "[interface.e]\nsubnet = \"s\"\naddress = [\"10.0.1.9\"]\ngroups = [\"g\", \"h\"]\n";
    assert!(parse(&format!("{BASE}{list}{groups}"), Path::new("vpc.toml")).is_ok());
    let error = parse(&format!("{BASE}{list}{groups}{eni}"), Path::new("vpc.toml")).unwrap_err();
    assert!(error.what.starts_with("2 groups of up to 600 rules"), "{error}");
}

#[test]
fn a_file_that_is_none_or_too_large_is_refused_before_it_is_read() {
    let directory = std::env::temp_dir();
    assert!(srd_vpc_file::read(&directory).unwrap_err().what.contains("is no file"));
    let name = directory.join(format!("srd-vpc-file-{}", std::process::id()));
    let error = srd_vpc_file::read(&name).unwrap_err();
    assert!(error.what.contains("cannot be read") && !error.remedy.is_empty(), "{error}");
    let file = std::fs::File::create(&name).unwrap();
    file.set_len(srd_vpc_file::FILE_BYTES_MAX + 1).unwrap();
    let error = srd_vpc_file::read(&name).unwrap_err();
    std::fs::remove_file(&name).unwrap();
    assert!(error.what.contains("are the most"), "{error}");
}

/// A card that got a file without content ended all its instances.
#[test]
fn regression_a_file_without_content_is_none_of_a_card() {
    let path = Path::new("vpc.toml");
    for text in ["", "\n", "# all lost\n"] {
        let file = parse(text, path).unwrap();
        assert!(file.is_empty(), "{text:?}");
        let error = file.for_card(path).unwrap_err().to_string();
        assert!(error.starts_with("vpc.toml: is empty"), "{error}");
        assert!(error.contains("end the card"), "{error}");
    }
    // A controller without a VPC writes such a file.
    for text in ["region = \"us-east-1\"\n", BASE] {
        assert!(parse(text, path).unwrap().for_card(path).is_ok(), "{text:?}");
    }
}

#[test]
fn the_example_of_the_documentation_is_valid() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vpc/web-app.toml");
    let file = srd_vpc_file::read(&example).unwrap();
    assert_eq!(file.world.enis.len(), 2);
}

/// A card treats packets from a host with the name `(edge)` as packets from the internet, so no
/// file may name a host like this.
#[test]
fn regression_a_host_has_a_name_as_others_have() {
    let host = |name: &str| {
        let text = format!("{BASE}[instance.i]\ntype = \"c7i.large\"\nhost = \"{name}\"");
        parse(&text, Path::new("vpc.toml"))
    };
    host("alpha.example-1").unwrap();
    for name in ["(edge)", "", "a b"] {
        let error = host(name).unwrap_err();
        assert_eq!(error.place.as_ref().map(|at| at.line), Some(7), "{name}");
        assert!(error.what.contains("can be no name"), "{error}");
    }
}

#[test]
fn a_pod_has_a_name_as_hosts_have() {
    let pod = |name: &str| {
        let text = format!("{BASE}[instance.i]\ntype = \"c7i.large\"\npod = \"{name}\"");
        parse(&text, Path::new("vpc.toml"))
    };
    let file = pod("cni-0123").unwrap();
    let instance = file.world.instances.values().next().unwrap();
    assert_eq!(instance.pod.as_deref(), Some("cni-0123"));
    let error = pod("../x").unwrap_err();
    assert!(error.what.contains("`../x` can be no name"), "{error}");
}
