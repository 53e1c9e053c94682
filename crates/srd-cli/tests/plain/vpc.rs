//! `srd vpc` as users run it, on the example of the documentation and on invalid files.

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

/// Writes a cloud with the instances a, b and c on two hosts. The first of `lines` is added to the
/// interface of a, and the second line to the interfaces of b and c.
fn on_two_hosts(directory: &Path, kind: &str, lines: [&str; 2]) -> String {
    let mut text = String::from(
        "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n[subnet.s]\ncidr = \"10.0.1.0/24\"\n\
         [group.open]\ningress = [\"all from 0.0.0.0/0\"]\n",
    );
    for (n, (name, host, line)) in
        (10..).zip([("a", "alpha", lines[0]), ("b", "beta", lines[1]), ("c", "alpha", lines[1])])
    {
        text += &format!(
            "[instance.{name}]\ntype = \"{kind}\"\nhost = \"{host}\"\n[interface.{name}]\n\
             subnet = \"s\"\naddress = [\"10.0.1.{n}\"]\ngroups = [\"open\"]\n\
             instance = \"{name}\"\n{line}\n"
        );
    }
    let path = directory.join("two.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The error of `srd up` had no position, and `srd vpc check` had no warning.
#[test]
fn regression_a_misspelt_instance_type_is_shown_with_its_line_and_a_suggestion() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let cloud = "# Machines\n[instance.web]\nhost = \"a\"\ntype = \"c7i.lage\"\n";
    std::fs::write(at("cloud.toml"), cloud).unwrap();
    let checked = srd(&["check", at("cloud.toml").to_str().unwrap()]);
    let said = text(&checked.stdout);
    assert!(said.contains("cloud.toml:4:8: `c7i.lage`: there is no such"), "{checked:#?}");
    assert!(checked.status.success() && said.contains("did you mean c7i.large"), "{said}");
    let settings = "[cloud]\nvpc = \"cloud.toml\"\nhost = \"a\"\n";
    std::fs::write(at("srd0.toml"), settings).unwrap();
    let mut up = Command::new(env!("CARGO_BIN_EXE_srd"));
    let output = up.args(["up", "--check", "-c"]).arg(at("srd0.toml")).output().unwrap();
    let error = text(&output.stderr);
    assert!(error.contains("cloud.toml:4:8: instance `web`: there is no instance type"), "{error}");
    assert!(error.contains("remedy: did you mean c7i.large"), "{error}");
    assert_eq!(output.status.code(), Some(2), "{error}");
    // The type of an instance of another host does not matter to this one.
    std::fs::write(at("srd0.toml"), settings.replace("\"a\"", "\"b\"")).unwrap();
    let mut up = Command::new(env!("CARGO_BIN_EXE_srd"));
    let output = up.args(["up", "--check", "-c"]).arg(at("srd0.toml")).output().unwrap();
    assert!(output.status.success(), "{output:#?}");
}

#[test]
fn explain_says_whether_a_connection_rides_srd_and_if_not_why() {
    let directory = tempfile::tempdir().unwrap();
    let (on, udp) = ("express = true", "express = true\nexpress_udp = true");
    let tcp = ["--protocol", "tcp"];
    let cases = [
        ("c7i.24xlarge", [on, on], "b", tcp, "rides SRD\n"),
        ("c7i.24xlarge", [on, on], "c", tcp, "not ride SRD: both interfaces are on one host"),
        ("c7i.24xlarge", [on, on], "b", ["--protocol", "icmp"], "not ride SRD: neither TCP"),
        ("c7i.24xlarge", [udp, on], "b", ["--protocol", "udp"], "receives has no `express_udp`"),
        ("c7i.24xlarge", [on, ""], "b", tcp, "the interface that receives has no `express`"),
        ("c7i.24xlarge", ["", on], "b", tcp, "the interface that sends has no `express`"),
        ("c7i.large", [on, on], "b", tcp, "not ride SRD: c7i.large has no ENA Express"),
    ];
    for (kind, lines, to, protocol, wanted) in cases {
        let file = on_two_hosts(directory.path(), kind, lines);
        let words = [&["explain", &file, "a", to][..], &protocol].concat();
        let output = srd(&words);
        assert!(text(&output.stdout).contains(wanted), "{words:?} {lines:?}: {output:#?}");
        let json = srd(&[&words[..], &["--json", "-"]].concat());
        let value: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(value["rides_srd"], wanted.starts_with("rides"), "{value}");
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

/// Flow logs and mirror sessions are counted, shown and compared like other objects.
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
    // The example has two interfaces with one address each, and a NAT gateway.
    assert_eq!(value[0]["NetworkAddressUsage"], 8);
    let output = srd(&["show", file]);
    assert!(text(&output.stdout).contains("tcp 443 from group web"));
}

/// A cloud may use 64,000 units, and 128,000 units together with the clouds that it is peered with.
#[test]
fn usage_beyond_a_quota_is_the_exit_code() {
    /// Returns a cloud whose interfaces have `units` addresses in the block 10.`n`.0.0/16.
    fn cloud(n: u32, units: u32) -> String {
        let mut text = format!(
            "[vpc.v{n}]\ncidr = [\"10.{n}.0.0/16\"]\n\
             [subnet.s{n}]\nvpc = \"v{n}\"\ncidr = \"10.{n}.0.0/16\"\n"
        );
        // EC2 reserves the first four addresses of a subnet.
        let all: Vec<u32> = (4..4 + units).collect();
        for (number, some) in all.chunks(8000).enumerate() {
            let address = |unit: &u32| format!("\"10.{n}.{}.{}\"", unit / 256, unit % 256);
            let some: Vec<String> = some.iter().map(address).collect();
            text += &format!(
                "[interface.i{n}x{number}]\nsubnet = \"s{n}\"\naddress = [{}]\n",
                some.join(",")
            );
        }
        text
    }
    let peering =
        |with: u32| format!("[peering.p{with}]\nrequester = \"v0\"\naccepter = \"v{with}\"\n");
    let (full, beyond) = (cloud(0, 64_000), cloud(0, 64_001));
    let two = full.clone() + &cloud(1, 64_000) + &peering(1);
    let three = two.clone() + &cloud(2, 1) + &peering(2);
    for (text, code, usage) in [
        (full, 0, [64_000, 64_000]),
        (beyond, 1, [64_001, 64_001]),
        (two, 0, [64_000, 128_000]),
        (three, 1, [64_000, 128_001]),
    ] {
        let (_directory, file) = file_of(&text);
        let output = srd(&["nau", &file, "--json", "-"]);
        assert_eq!(output.status.code(), Some(code), "{usage:?}: {}", self::text(&output.stderr));
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |name: &str| value[0][name].as_u64().unwrap();
        let own = [of("NetworkAddressUsage"), of("NetworkAddressUsagePeered")];
        assert_eq!(own, usage);
    }
}

/// Writes a file in a new temporary directory, which exists until the returned guard is dropped.
/// Returns the guard and the file's path.
fn file_of(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vpc.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

/// Returns the example with an access control list that admits answers into the public subnet only
/// to `ports`.
fn answers_to(ports: &str) -> String {
    let text = std::fs::read_to_string(example()).unwrap();
    let list = format!(
        "[acl.public]\ningress = [\"100 allow all from 10.0.0.0/16\", \
         \"110 allow tcp {ports} from 0.0.0.0/0\"]\negress = [\"100 allow all to 0.0.0.0/0\"]\n"
    );
    let web = "[subnet.web]\ncidr = \"10.0.1.0/24\"\nroute_table = \"public\"\nacl = ";
    let with = text.replace(&format!("{web}\"open\""), &format!("{list}{web}\"public\""));
    assert_ne!(with, text);
    with
}

/// A NAT gateway uses any port from 1024 on, regardless of the client's port.
#[test]
fn regression_explain_says_for_which_ports_of_a_nat_gateway_a_connection_works() {
    let (_directory, file) = file_of(&answers_to("32768-60999"));
    let explain = |more: &[&str]| srd(&[&["explain", &file, "app", "internet"], more].concat());
    let output = explain(&[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    for part in
        ["works for part of the connections", "nat_gateway out", "1024-65535", "32768-60999"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let value: Value = serde_json::from_slice(&explain(&["--json", "-"]).stdout).unwrap();
    assert_eq!((&value["works"], &value["works_for_part"]), (&false.into(), &true.into()));
    let wanted = serde_json::json!([
        { "of": "nat_gateway out", "taken": "1024-65535", "works": ["32768-60999"] }
    ]);
    assert_eq!(value["conditions"], wanted);
    let output = srd(&["check", &file]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    assert!(
        said.contains("warning: acl public, ingress of subnet web: of the tcp ports"),
        "{said}"
    );
    assert!(said.contains("nat_gateway out takes"), "{said}");

    // The access control list in EC2's guide admits answers to all ports of a NAT gateway; the
    // second list denies them all.
    let (_directory, file) = file_of(&answers_to("1024-65535"));
    let output = srd(&["explain", &file, "app", "internet"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(!text(&srd(&["check", &file]).stdout).contains("warning"));
    let (_directory, file) = file_of(&answers_to("1-1023"));
    let output = srd(&["explain", &file, "app", "internet"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("does not work"), "{}", text(&output.stdout));
    // The list admits only a part of the ports that a NAT gateway and a client may use.
    let (_directory, file) = file_of(&answers_to("1024-30000"));
    let output = srd(&["explain", &file, "app", "internet"]);
    assert!(text(&output.stdout).contains("works for part"), "{}", text(&output.stdout));
}

/// Clients in the internet use other ports than clients under Linux do.
#[test]
fn explain_says_for_which_ports_of_clients_a_connection_works() {
    let with = std::fs::read_to_string(example()).unwrap().replace(
        "egress = [\"100 allow all to 0.0.0.0/0\"]",
        "egress = [\"90 allow all to 10.0.0.0/8\", \"100 allow tcp 32768-60999 to 0.0.0.0/0\"]",
    );
    let (_directory, file) = file_of(&with);
    let output = srd(&["explain", &file, "internet", "web"]);
    let said = text(&output.stdout);
    assert!(said.contains("the client takes one of the ports 1024-65535"), "{said}");
    for (port, code) in [("40000", 0), ("2000", 1)] {
        let output = srd(&["explain", &file, "internet", "web", "--source-port", port]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stdout));
    }
    assert_eq!(srd(&["explain", &file, "web", "app"]).status.code(), Some(0), "both under Linux");
    let said = text(&srd(&["check", &file]).stdout).to_owned();
    assert!(said.contains("clients of the internet take"), "{said}");
}

const PRIVATE: &str = r#"
[vpc.a]
cidr = ["10.0.0.0/16"]
[vpc.b]
cidr = ["10.1.0.0/16"]
[peering.ab]
requester = "a"
accepter = "b"
active = true
[route_table.app]
vpc = "a"
routes = ["10.1.0.0/16 to nat_gateway n"]
[route_table.gateway]
vpc = "a"
routes = ["10.1.0.0/16 to peering ab"]
[route_table.b]
vpc = "b"
routes = ["10.0.9.0/24 to peering ab"]
[subnet.app]
vpc = "a"
cidr = "10.0.1.0/24"
route_table = "app"
[subnet.gateway]
vpc = "a"
cidr = "10.0.9.0/24"
route_table = "gateway"
[subnet.b]
vpc = "b"
cidr = "10.1.1.0/24"
route_table = "b"
[nat_gateway.n]
subnet = "gateway"
private = "10.0.9.9"
[group.a]
vpc = "a"
[group.b]
vpc = "b"
ingress = ["tcp 443 from 10.0.9.9/32", "tcp 22 from group a"]
[instance.app]
type = "c7i.large"
[instance.b]
type = "c7i.large"
[interface.app]
subnet = "app"
address = ["10.0.1.10"]
groups = ["a"]
instance = "app"
[interface.b]
subnet = "b"
address = ["10.1.1.10"]
groups = ["b"]
instance = "b"
"#;

#[test]
fn regression_a_private_nat_gateway_leads_to_a_peered_cloud_and_back() {
    let (_directory, file) = file_of(PRIVATE);
    let output = srd(&["explain", &file, "app", "b"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in ["writes the source 10.0.9.9", "writes the destination 10.0.1.10 for 10.0.9.9"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(srd(&["explain", &file, "app", "b", "--port", "80"]).status.code(), Some(1));
    // An instance of the peered cloud cannot open a connection through the NAT gateway.
    let output = srd(&["explain", &file, "b", "10.0.9.9"]);
    assert!(text(&output.stdout).contains("lets answers in and no connection"));
    assert!(!text(&srd(&["check", &file]).stdout).contains("warning"));
}

/// EC2 calls a rule stale if it names a group behind a peering connection that is not active.
#[test]
fn regression_rules_and_routes_over_a_peering_that_is_not_active_are_named() {
    let inactive = PRIVATE.replace("active = true", "active = false");
    let (_directory, file) = file_of(&inactive);
    let output = srd(&["check", &file, "--json", "-"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings = value["warnings"].as_array().unwrap();
    let said = |part: &str| warnings.iter().any(|of| of.as_str().unwrap().contains(part));
    assert!(said("group b: the rule \"tcp 22 from group a\" is stale"), "{warnings:?}");
    assert!(
        said("route_table gateway: the route to 10.1.0.0/16 leads to peering ab"),
        "{warnings:?}"
    );
    let third = "[interface.c]\nsubnet = \"b\"\naddress = [\"10.1.1.11\"]\ngroups = [\"b\"]\n";
    let local = format!("{inactive}{third}");
    let (_directory, file) = file_of(&local);
    let said = srd(&["explain", &file, "b", "c", "--port", "22"]);
    let said = text(&said.stdout);
    assert!(said.contains("note: group b: the rule \"tcp 22 from group a\" is stale"), "{said}");
}

/// Internet gateways and NAT gateways drop packets to addresses that the internet does not route.
#[test]
fn regression_private_destinations_do_not_leave_the_cloud() {
    let file = example();
    let file = file.to_str().unwrap();
    for from in ["web", "app"] {
        for to in ["192.168.1.1", "172.16.0.1", "127.0.0.1", "100.64.0.1", "224.0.0.1", "240.0.0.1"]
        {
            let output = srd(&["explain", file, from, to]);
            assert_eq!(output.status.code(), Some(1), "{from} {to}");
            let said = text(&output.stdout);
            assert!(said.contains("that the internet does not carry"), "{said}");
        }
        assert_eq!(srd(&["explain", file, from, "8.8.8.8"]).status.code(), Some(0));
        let output = srd(&["explain", file, from, "192.168.1.1", "--internet-private"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
        let output = srd(&["explain", file, from, "127.0.0.1", "--internet-private"]);
        assert_eq!(output.status.code(), Some(1), "no network carries it");
    }
}

/// Regression: the destination was looked up in the sender's cloud instead of the peered cloud.
#[test]
fn regression_an_address_of_no_interface_of_a_peered_cloud_is_said_to_be_so() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("peered.toml");
    let cloud = r#"
[vpc.a]
cidr = ["10.0.0.0/16"]
[vpc.b]
cidr = ["10.1.0.0/16"]
[peering.p]
requester = "a"
accepter = "b"
[route_table.out]
vpc = "a"
routes = ["10.1.0.0/16 to peering p"]
[subnet.s]
vpc = "a"
cidr = "10.0.1.0/24"
route_table = "out"
[instance.web]
type = "c7i.large"
[interface.web]
subnet = "s"
address = ["10.0.1.10"]
instance = "web"
"#;
    std::fs::write(&file, cloud).unwrap();
    let file = file.to_str().unwrap();
    let output = srd(&["explain", file, "web", "10.1.1.99", "--port", "80"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["mapping of vpc b", "no interface of this cloud has 10.1.1.99", "remedy: check"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
