//! Addresses of a subnet do not overlap, whatever clients request.

use std::net::{Ipv4Addr, Ipv6Addr};

use srd_control::state::{IdGenerator, Region};

use crate::support::{Client, all, first};

/// Checks the addresses of each subnet.
fn check(region: &Region) {
    for subnet in region.subnets.iter() {
        let mut used: Vec<(u128, u128)> = Vec::new();
        let block = subnet.cidr_block.unwrap();
        let v4 = |ip: Ipv4Addr| u128::from(u32::from(ip));
        used.extend([0, 1, 2, 3].map(|n| (v4(block.network()) + n, v4(block.network()) + n)));
        used.push((v4(block.broadcast()), v4(block.broadcast())));
        for i in region.interfaces.iter().filter(|i| i.subnet_id == subnet.subnet_id) {
            for of in &i.private_ip_addresses {
                assert!(block.contains(&of.private_ip_address));
                used.push((v4(of.private_ip_address), v4(of.private_ip_address)));
            }
            for of in &i.ipv4_prefixes {
                assert!(block.contains(&of.ipv4_prefix));
                used.push((v4(of.ipv4_prefix.network()), v4(of.ipv4_prefix.broadcast())));
            }
            let in_block = |ip: Ipv6Addr| {
                let blocks = &subnet.ipv6_cidr_block_association_set;
                assert!(blocks.iter().any(|of| of.ipv6_cidr_block.contains(&ip)));
                u128::from(ip)
            };
            for of in &i.ipv6_addresses {
                used.push((in_block(of.ipv6_address), in_block(of.ipv6_address)));
            }
            for of in &i.ipv6_prefixes {
                let (from, to) = (of.ipv6_prefix.network(), of.ipv6_prefix.broadcast());
                used.push((in_block(from), in_block(to)));
            }
        }
        used.sort_unstable();
        let overlap = used.windows(2).find(|pair| pair[0].1 >= pair[1].0);
        assert!(overlap.is_none(), "{overlap:x?} in {:#?}", region.interfaces.iter().last());
    }
}

/// A source of requests.
struct Random(IdGenerator);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// Parameters for addresses and prefixes. `of` are the names of the members of lists, which
    /// differ between actions.
    fn addresses(&mut self, v6: &str, of: [&str; 3]) -> String {
        let mut form = String::new();
        let [v4_of, prefix_of, v6_of] = of;
        let (v6_net, _) = v6.split_once("::").unwrap();
        for n in 1..=self.below(3) {
            form += &format!("&PrivateIpAddresses.{n}{v4_of}=10.0.1.{}", self.below(66));
        }
        for n in 1..=self.below(3) {
            form += &format!("&Ipv4Prefix.{n}{prefix_of}=10.0.1.{}/28", 16 * self.below(5));
        }
        for n in 1..=self.below(3) {
            let (a, b) = (self.below(3), self.below(3));
            form += &format!("&Ipv6Addresses.{n}{v6_of}={v6_net}:{a}::{b}");
        }
        if self.below(2) == 0 {
            form += &format!("&SecondaryPrivateIpAddressCount={}", self.below(12));
        }
        for name in ["Ipv4PrefixCount", "Ipv6AddressCount", "Ipv6PrefixCount"] {
            if self.below(3) == 0 {
                form += &format!("&{name}={}", self.below(3));
            }
        }
        form
    }
}

/// A regression: a request was accepted although its addresses overlapped each other.
#[test]
fn no_accepted_request_makes_addresses_overlap() {
    let mut accepted = 0;
    for seed in 0..40 {
        let mut random = Random(IdGenerator::new(seed));
        let mut client = Client::new();
        let form = "Action=CreateVpc&CidrBlock=10.0.0.0/16&AmazonProvidedIpv6CidrBlock=true";
        let vpc = client.take(form, "vpcId");
        let block = client.state().vpcs.get(&vpc).unwrap().ipv6_cidr_block_association_set[0]
            .ipv6_cidr_block;
        let v6 = format!("{}/64", block.network());
        let form =
            format!("Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.1.0/26&Ipv6CidrBlock={v6}");
        let subnet = client.take(&form, "subnetId");
        for _ in 0..40 {
            let interfaces = client.state().interfaces.iter();
            let ids: Vec<String> = interfaces.map(|i| i.network_interface_id.clone()).collect();
            let at = usize::try_from(random.below(1 + u64::try_from(ids.len()).unwrap())).unwrap();
            let id = ids.get(at).cloned().unwrap_or_default();
            let form = match random.below(6) {
                0 => format!(
                    "Action=CreateNetworkInterface&SubnetId={subnet}{}",
                    random.addresses(&v6, [".PrivateIpAddress", ".Ipv4Prefix", ".Ipv6Address"])
                ),
                1 => format!(
                    "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=2\
                     &NetworkInterface.1.DeviceIndex=0&NetworkInterface.1.SubnetId={subnet}{}",
                    random
                        .addresses(&v6, [".PrivateIpAddress", ".Ipv4Prefix", ".Ipv6Address"])
                        .replace("&Private", "&NetworkInterface.1.Private")
                        .replace("&Secondary", "&NetworkInterface.1.Secondary")
                        .replace("&Ipv", "&NetworkInterface.1.Ipv")
                ),
                2 => {
                    let form = random.addresses(&v6, ["", "", ""]);
                    let v4 = form.split('&').filter(|p| !p.starts_with("Ipv6"));
                    let v4: Vec<&str> = v4.collect();
                    format!(
                        "Action=AssignPrivateIpAddresses&NetworkInterfaceId={id}\
                         &AllowReassignment={}{}",
                        random.below(2) == 0,
                        v4.join("&").replace("PrivateIpAddresses", "PrivateIpAddress")
                    )
                }
                3 => {
                    let form = random.addresses(&v6, ["", "", ""]);
                    let v6: Vec<&str> = form.split('&').filter(|p| p.starts_with("Ipv6")).collect();
                    format!("Action=AssignIpv6Addresses&NetworkInterfaceId={id}&{}", v6.join("&"))
                }
                4 => format!("Action=DeleteNetworkInterface&NetworkInterfaceId={id}"),
                _ => format!(
                    "Action=CreateSubnetCidrReservation&SubnetId={subnet}&ReservationType={}\
                     &Cidr=10.0.1.{}/30",
                    ["explicit", "prefix"][usize::from(random.below(2) == 0)],
                    4 * random.below(16)
                ),
            };
            let answer = client.send(&form);
            if answer.status == 200 {
                accepted += 1;
                check(client.state());
            } else {
                let code = first(&answer.body, "Code");
                assert!(
                    !["UnknownParameter", "MissingParameter", "InternalError"]
                        .contains(&code.as_str()),
                    "{form}: {}",
                    answer.body
                );
            }
        }
    }
    assert!(accepted > 200, "{accepted}");
}

#[test]
fn free_addresses_leave_out_what_is_used_and_reserved() {
    let mut client = Client::new();
    let vpc = client.take("Action=CreateVpc&CidrBlock=10.0.0.0/16", "vpcId");
    let form = format!("Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.1.0/26");
    let subnet = client.take(&form, "subnetId");
    let reserve = format!("Action=CreateSubnetCidrReservation&SubnetId={subnet}&ReservationType=");
    client.ok(&format!("{reserve}explicit&Cidr=10.0.1.16/30"));
    let create = format!("Action=CreateNetworkInterface&SubnetId={subnet}");
    let made = client.ok(&format!("{create}&SecondaryPrivateIpAddressCount=13&Ipv4PrefixCount=1"));
    let mut expected: Vec<String> = (4..16).map(|n| format!("10.0.1.{n}")).collect();
    expected.extend(["10.0.1.20", "10.0.1.21"].map(str::to_owned));
    let mut addresses = all(&made, "privateIpAddress");
    addresses.dedup();
    addresses.retain(|ip| expected.contains(ip));
    assert_eq!(addresses, expected);
    assert_eq!(all(&made, "ipv4Prefix"), ["10.0.1.32/28"]);
    let more = format!("{create}&Ipv4PrefixCount=1");
    assert_eq!(client.code(&more), "InsufficientCidrBlocks");
}
