//! Network address usage, in the units of Amazon's VPC guide.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use srd_vpc::id::VpcId;
use srd_vpc::nau;
use srd_vpc_file::{Kind, parse};

#[test]
fn addresses_prefixes_further_interfaces_and_gateways_count() {
    let text = r#"
        [vpc.a]
        cidr = ["10.0.0.0/16", "fd12:3456::/56"]
        [vpc.b]
        cidr = ["10.1.0.0/16"]
        [peering.p]
        requester = "a"
        accepter = "b"
        [subnet.a]
        vpc = "a"
        cidr = "10.0.1.0/24"
        ipv6_cidr = "fd12:3456:0:1::/64"
        [subnet.b]
        vpc = "b"
        cidr = "10.1.1.0/24"
        [instance.i]
        type = "c7i.large"
        [interface.first]
        subnet = "a"
        address = ["10.0.1.10", "fd12:3456:0:1::10"]
        instance = "i"
        [interface.second]
        subnet = "a"
        address = ["10.0.1.11", "10.0.1.12"]
        prefixes = ["10.0.1.16/28"]
        instance = "i"
        device_index = 1
        [interface.other]
        subnet = "b"
        address = ["10.1.1.10"]
        [nat_gateway.n]
        subnet = "a"
        private = "10.0.1.5"
    "#;
    let usage = |text: &str| {
        let file = parse(text, Path::new("vpc.toml")).unwrap();
        let vpc = VpcId(file.names.number(Kind::Vpc, "a").unwrap());
        (nau::of(&file.world, vpc), nau::peered(&file.world, vpc))
    };
    // The first interface counts two units for its addresses. The second counts two for its
    // addresses, one for a prefix, and one because it is not the first of its instance. The NAT
    // gateway counts six. The peered cloud has one address.
    assert_eq!(usage(text), (2 + 4 + 6, 2 + 4 + 6 + 1));
    let inactive = text.replace("accepter = \"b\"", "accepter = \"b\"\n        active = false");
    assert_eq!(usage(&inactive), (12, 12));
}
