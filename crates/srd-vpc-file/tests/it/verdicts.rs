//! Rules of AWS's documents about packets, tested in clouds from `vpc.toml`.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use srd_vpc::id::EniId;
use srd_vpc::judge::{
    Connection, Origin, Reach, Reason, Service, Step, Tracking, Verdict, connection,
};
use srd_vpc::packet::{Inner, Packet};
use srd_vpc_file::{Kind, VpcFile, parse};

/// Two subnets of one cloud, reachable from outside, with an interface in each.
const BASE: &str = r#"
    [vpc.main]
    cidr = ["10.0.0.0/16", "fd12:3456::/56"]
    [internet_gateway.door]
    [route_table.public]
    routes = ["0.0.0.0/0 to internet_gateway door", "::/0 to internet_gateway door"]
    [subnet.left]
    cidr = "10.0.1.0/24"
    ipv6_cidr = "fd12:3456:0:1::/64"
    route_table = "public"
    acl = "left"
    [subnet.right]
    cidr = "10.0.2.0/24"
    route_table = "public"
    [interface.a]
    subnet = "left"
    address = ["10.0.1.10", "fd12:3456:0:1::10"]
    groups = ["g"]
    [interface.b]
    subnet = "left"
    address = ["10.0.1.11"]
    groups = ["open"]
    [interface.c]
    subnet = "right"
    address = ["10.0.2.10"]
    groups = ["open"]
    [elastic_address.a]
    public = "198.51.100.10"
    interface = "a"
    [group.open]
    ingress = ["all from 0.0.0.0/0", "all from ::/0"]
"#;
const OPEN_ACL: &str = r#"
    [acl.left]
    ingress = ["100 allow all from 0.0.0.0/0", "101 allow all from ::/0"]
    egress = ["100 allow all to 0.0.0.0/0", "101 allow all to ::/0"]
"#;

fn file(text: &str) -> VpcFile {
    parse(text, Path::new("vpc.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn base(more: &str) -> VpcFile {
    file(&format!("{BASE}{OPEN_ACL}{more}"))
}

fn eni(file: &VpcFile, name: &str) -> EniId {
    EniId(file.names.number(Kind::Interface, name).unwrap())
}

fn ask(file: &VpcFile, from: Option<&str>, source: &str, to: &str, inner: Inner) -> Connection {
    let origin = from.map_or(Origin::Internet, |name| Origin::Eni(eni(file, name)));
    let packet =
        Packet { source: source.parse().unwrap(), destination: to.parse().unwrap(), inner };
    connection(&file.world, origin, &packet)
}

const fn tcp(port: u16) -> Inner {
    Inner::Tcp(50_000, port)
}

/// Returns how the receiving interface tracks the flow. If the groups of only the sending interface
/// were evaluated, returns how the sending interface tracks it.
fn tracking(connection: &Connection) -> Option<Tracking> {
    connection.first.steps.iter().rev().find_map(|step| match step {
        Step::Groups { tracking, .. } => *tracking,
        _ => None,
    })
}

#[test]
fn the_table_of_tracked_and_untracked_flows_is_the_documents() {
    let ingress = r#"[group.g]
        ingress = ["tcp 22 from 203.0.113.1/32", "tcp 80 from 0.0.0.0/0", "tcp 80 from ::/0",
                   "icmp from 0.0.0.0/0"]
    "#;
    let cases = [
        ("", tcp(22), Tracking::RuleIsNarrow),
        ("", tcp(80), Tracking::Untracked),
        ("", Inner::Icmp(8, 0), Tracking::OtherProtocol),
        ("egress = [\"all to 10.0.0.0/16\"]", tcp(80), Tracking::AnswersAreNarrow),
        ("egress = [\"tcp to 0.0.0.0/0\"]", tcp(80), Tracking::Untracked),
        ("egress = [\"tcp 1-65535 to 0.0.0.0/0\"]", tcp(80), Tracking::AnswersAreNarrow),
        ("egress = [\"udp to 0.0.0.0/0\"]", tcp(80), Tracking::AnswersAreNarrow),
    ];
    for (egress, inner, expected) in cases {
        let file = base(&format!("{ingress}{egress}"));
        let connection = ask(&file, None, "203.0.113.1", "198.51.100.10", inner);
        assert!(connection.works(), "{egress} {inner:?}: {connection:#?}");
        assert_eq!(tracking(&connection), Some(expected), "{egress} {inner:?}");
    }
}

#[test]
fn a_list_decides_by_its_lowest_number_and_only_at_the_border() {
    let acl = r#"[group.g]
        ingress = ["all from 0.0.0.0/0"]
        [acl.left]
        ingress = ["200 allow all from 0.0.0.0/0", "100 deny tcp 80 from 0.0.0.0/0"]
        egress = ["100 allow all to 0.0.0.0/0"]
    "#;
    let file = file(&format!("{BASE}{acl}"));
    let from = |name, source, to, port| ask(&file, Some(name), source, to, tcp(port)).first.verdict;
    let a = Verdict::Delivered(eni(&file, "a"));
    assert_eq!(from("c", "10.0.2.10", "10.0.1.10", 80), Verdict::Dropped(Reason::AclIn));
    assert_eq!(from("c", "10.0.2.10", "10.0.1.10", 81), a);
    assert_eq!(from("b", "10.0.1.11", "10.0.1.10", 80), a, "inside the subnet");
}

#[test]
fn a_list_that_forgets_answers_breaks_the_connection_on_its_way_back() {
    let acl = r#"[group.g]
        ingress = ["all from 0.0.0.0/0"]
        [acl.left]
        ingress = ["100 allow tcp 443 from 0.0.0.0/0"]
        egress = ["100 allow tcp 443 to 0.0.0.0/0"]
    "#;
    let file = file(&format!("{BASE}{acl}"));
    let connection = ask(&file, None, "203.0.113.1", "198.51.100.10", tcp(443));
    assert!(connection.first.passes());
    let answer = connection.answer.unwrap();
    assert_eq!(answer.verdict, Verdict::Dropped(Reason::AclOut));
}

#[test]
fn nobody_sends_from_addresses_of_others() {
    let file = base("[group.g]");
    let drop = Verdict::Dropped(Reason::NotItsAddress);
    for source in ["10.0.1.11", "10.0.2.10", "203.0.113.9", "fd12:3456:0:1::11"] {
        let to = if source.contains(':') { "fd12:3456:0:1::99" } else { "10.0.1.12" };
        assert_eq!(ask(&file, Some("a"), source, to, tcp(1)).first.verdict, drop, "{source}");
    }
    let families = ask(&file, Some("a"), "10.0.1.10", "fd12:3456:0:1::10", tcp(1));
    assert_eq!(families.first.verdict, Verdict::Dropped(Reason::Families));
}

#[test]
fn services_are_reached_whatever_groups_and_lists_say() {
    let file = base("[group.g]\negress = []");
    let served = |to: &str| ask(&file, Some("a"), "10.0.1.10", to, Inner::Udp(5, 53)).first.verdict;
    assert_eq!(served("10.0.0.2"), Verdict::Served(Service::Resolver));
    assert_eq!(served("169.254.169.253"), Verdict::Served(Service::Resolver));
    assert_eq!(served("169.254.169.254"), Verdict::Served(Service::Metadata));
    assert_eq!(served("169.254.169.123"), Verdict::Served(Service::Time));
    assert_eq!(served("10.0.0.3"), Verdict::Dropped(Reason::GroupsOut));
}

#[test]
fn the_longest_prefix_wins_and_of_equals_a_block_beats_a_list() {
    let routes = |routes: &str| {
        let text = BASE.replace("\"::/0 to internet_gateway door\"", routes);
        let more = r#"[group.g]
            [prefix_list.l]
            entries = ["192.0.2.0/24"]
            [prefix_list.x]
            entries = ["192.0.2.128/25"]
        "#;
        let file = file(&format!("{text}{OPEN_ACL}{more}"));
        ask(&file, Some("a"), "10.0.1.10", "192.0.2.200", tcp(1)).first.verdict
    };
    let hole = Verdict::Dropped(Reason::Blackhole);
    assert_ne!(routes(""), hole);
    assert_eq!(routes("\"192.0.2.0/24 to blackhole\""), hole);
    assert_ne!(
        routes("\"192.0.2.0/24 to blackhole\", \"192.0.2.128/25 to internet_gateway door\""),
        hole
    );
    assert_ne!(
        routes("\"list l to blackhole\", \"192.0.2.0/24 to internet_gateway door\""),
        hole,
        "a block beats a list of the same length"
    );
    assert_eq!(
        routes("\"list x to blackhole\", \"192.0.2.0/24 to internet_gateway door\""),
        hole,
        "a longer list beats a block"
    );
}

const PEERS: &str = r#"
    [vpc.one]
    cidr = ["10.1.0.0/16"]
    [vpc.two]
    cidr = ["10.2.0.0/16"]
    [vpc.three]
    cidr = ["10.3.0.0/16"]
    [peering.p]
    requester = "one"
    accepter = "two"
    [peering.q]
    requester = "two"
    accepter = "three"
    [route_table.one]
    vpc = "one"
    main = true
    routes = ["10.2.0.0/16 to peering p", "10.3.0.0/16 to peering p"]
    [route_table.two]
    vpc = "two"
    main = true
    routes = ["10.1.0.0/16 to peering p", "10.3.0.0/16 to peering q"]
    [subnet.one]
    vpc = "one"
    cidr = "10.1.0.0/24"
    [subnet.two]
    vpc = "two"
    cidr = "10.2.0.0/24"
    [subnet.three]
    vpc = "three"
    cidr = "10.3.0.0/24"
    [group.one]
    vpc = "one"
    [group.two]
    vpc = "two"
    ingress = ["tcp 5432 from group one"]
    [group.three]
    vpc = "three"
    ingress = ["all from 0.0.0.0/0", "tcp 5 from group one"]
    [interface.one]
    subnet = "one"
    address = ["10.1.0.10"]
    groups = ["one"]
    [interface.two]
    subnet = "two"
    address = ["10.2.0.10"]
    groups = ["two"]
    [interface.three]
    subnet = "three"
    address = ["10.3.0.10"]
    groups = ["three"]
"#;

#[test]
fn peering_takes_references_along_and_leads_no_further() {
    let file = file(PEERS);
    let one = |to: &str, port| ask(&file, Some("one"), "10.1.0.10", to, tcp(port));
    let works = one("10.2.0.10", 5432);
    assert!(works.works(), "{works:#?}");
    assert_eq!(works.first.reach, Some(Reach::Peering));
    assert_eq!(one("10.2.0.10", 5433).first.verdict, Verdict::Dropped(Reason::GroupsIn));
    assert_eq!(one("10.3.0.10", 5432).first.verdict, Verdict::Dropped(Reason::NoTransit));
    // The third cloud has no route back.
    let two = ask(&file, Some("two"), "10.2.0.10", "10.3.0.10", tcp(1));
    assert_eq!(two.answer.unwrap().verdict, Verdict::Dropped(Reason::NoRoute));
}

#[test]
fn a_peering_connection_that_is_not_accepted_carries_nothing() {
    let file = file(&PEERS.replace("accepter = \"two\"", "accepter = \"two\"\nactive = false"));
    let verdict = ask(&file, Some("one"), "10.1.0.10", "10.2.0.10", tcp(5432)).first.verdict;
    assert_eq!(verdict, Verdict::Dropped(Reason::NotPeered));
}

#[test]
fn clouds_with_the_same_addresses_never_meet() {
    let peered = r#"
        [vpc.x]
        cidr = ["10.1.0.0/16"]
        [vpc.y]
        cidr = ["10.9.0.0/16", "10.1.128.0/20"]
        [peering.p]
        requester = "x"
        accepter = "y"
    "#;
    let error = parse(peered, Path::new("vpc.toml")).unwrap_err();
    assert!(error.what.contains("cannot be peered"), "{error}");
    // Without peering, both clouds may exist, and each reaches only its own interfaces.
    let text = r#"
        [vpc.x]
        cidr = ["10.1.0.0/16"]
        [vpc.y]
        cidr = ["10.1.0.0/16"]
        [subnet.x]
        vpc = "x"
        cidr = "10.1.0.0/24"
        [subnet.y]
        vpc = "y"
        cidr = "10.1.0.0/24"
        [interface.x]
        subnet = "x"
        address = ["10.1.0.10"]
        [interface.x2]
        subnet = "x"
        address = ["10.1.0.11"]
        [interface.y]
        subnet = "y"
        address = ["10.1.0.11"]
    "#;
    let file = file(text);
    let verdict = ask(&file, Some("x"), "10.1.0.10", "10.1.0.11", tcp(1)).first.verdict;
    assert_eq!(verdict, Verdict::Delivered(eni(&file, "x2")));
}

#[test]
fn a_nat_gateway_takes_connections_out_and_none_in() {
    let more = r#"[group.g]
        ingress = ["all from 0.0.0.0/0"]
        [subnet.deep]
        cidr = "10.0.3.0/24"
        route_table = "deep"
        [route_table.deep]
        routes = ["0.0.0.0/0 to nat_gateway out"]
        [nat_gateway.out]
        subnet = "left"
        private = "10.0.1.5"
        elastic_address = "out"
        [elastic_address.out]
        public = "198.51.100.5"
        [interface.d]
        subnet = "deep"
        address = ["10.0.3.10"]
        groups = ["open"]
    "#;
    let file = base(more);
    let out = ask(&file, Some("d"), "10.0.3.10", "203.0.113.1", tcp(80));
    assert!(out.works(), "{out:#?}");
    assert_eq!(out.first.packet.source.to_string(), "198.51.100.5");
    assert_eq!(tracking(&out), Some(Tracking::Automatic));
    assert_eq!(out.answer.unwrap().verdict, Verdict::Delivered(eni(&file, "d")));
    let into = ask(&file, None, "203.0.113.1", "198.51.100.5", tcp(80));
    assert_eq!(into.first.verdict, Verdict::Dropped(Reason::NoInterface));
}

#[test]
fn an_answer_by_another_gateway_is_no_answer() {
    let more = r#"[group.g]
        ingress = ["all from 0.0.0.0/0"]
        [nat_gateway.out]
        subnet = "right"
        private = "10.0.2.5"
        elastic_address = "out"
        [elastic_address.out]
        public = "198.51.100.5"
    "#;
    let text = format!("{BASE}{OPEN_ACL}{more}");
    let text = text.replacen(
        "route_table = \"public\"\n    acl = \"left\"",
        "route_table = \"back\"\n    acl = \"left\"",
        1,
    );
    let file =
        file(&format!("{text}[route_table.back]\nroutes = [\"0.0.0.0/0 to nat_gateway out\"]"));
    let connection = ask(&file, None, "203.0.113.1", "198.51.100.10", tcp(80));
    assert!(connection.first.passes());
    let answer = connection.answer.unwrap();
    assert_eq!(answer.verdict, Verdict::Dropped(Reason::OpensNoConnection));
    let translates = |step: &Step| matches!(step, Step::Source4 { .. });
    assert!(!answer.steps.iter().any(translates), "{:#?}", answer.steps);
    assert_eq!(answer.packet.source.to_string(), "10.0.1.10", "nothing is translated");
    // A NAT gateway translates each datagram of UDP, so the answer has another source.
    let connection = ask(&file, None, "203.0.113.1", "198.51.100.10", Inner::Udp(50_000, 53));
    assert!(connection.first.passes());
    let answer = connection.answer.unwrap();
    assert_eq!(answer.verdict, Verdict::Dropped(Reason::AnotherWayBack));
    assert_eq!(answer.packet.source.to_string(), "198.51.100.5");
}

#[test]
fn an_egress_only_gateway_lets_answers_in_and_no_connection() {
    let text = BASE.replace("::/0 to internet_gateway door", "::/0 to egress_only_gateway e");
    let more = "[egress_only_gateway.e]\n[group.g]\ningress = [\"all from ::/0\"]";
    let file = file(&format!("{text}{OPEN_ACL}{more}"));
    let own = "fd12:3456:0:1::10";
    let out = ask(&file, Some("a"), own, "2001:db8::1", tcp(80));
    assert!(out.works(), "{out:#?}");
    let into = ask(&file, None, "2001:db8::1", own, tcp(80));
    assert_eq!(into.first.verdict, Verdict::Dropped(Reason::OutwardsOnly));
}

#[test]
fn a_middlebox_gets_what_is_for_others_if_it_does_not_check() {
    let middlebox = |check: bool| {
        let more = format!(
            "[group.g]\n[interface.m]\nsubnet = \"right\"\naddress = [\"10.0.2.20\"]\n\
             groups = [\"open\"]\nsource_dest_check = {check}"
        );
        let text = BASE.replace("0.0.0.0/0 to internet_gateway door", "0.0.0.0/0 to interface m");
        let file = file(&format!("{text}{OPEN_ACL}{more}"));
        let verdict = ask(&file, Some("a"), "10.0.1.10", "203.0.113.1", tcp(80)).first.verdict;
        (verdict, Verdict::Delivered(eni(&file, "m")))
    };
    let (verdict, at_middlebox) = middlebox(false);
    assert_eq!(verdict, at_middlebox);
    assert_eq!(middlebox(true).0, Verdict::Dropped(Reason::ChecksDestination));
}

#[test]
fn a_sender_without_a_public_address_does_not_reach_the_internet() {
    let file = base("[group.g]");
    let verdict = ask(&file, Some("c"), "10.0.2.10", "203.0.113.1", tcp(80)).first.verdict;
    assert_eq!(verdict, Verdict::Dropped(Reason::NoPublicAddress));
}
