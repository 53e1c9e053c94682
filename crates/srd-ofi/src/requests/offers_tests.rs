use std::ffi::CStr;

use super::*;
use crate::settings::{Illegible, Values};

struct Preset(Option<&'static str>);

impl Values for Preset {
    fn string(&self, name: &CStr) -> Option<String> {
        self.0.filter(|_| name == c"iface").map(str::to_string)
    }

    fn integer(&self, _: &CStr) -> Result<Option<i32>, Illegible> {
        Ok(None)
    }
}

fn address(interface: &str, ip: &str) -> LocalAddress {
    let ip = ip.parse().unwrap();
    LocalAddress { interface: interface.into(), ip, loopback: interface == "lo" }
}

fn machine() -> Vec<LocalAddress> {
    let addresses = [
        ("lo", "127.0.0.1"),
        ("eth0", "10.0.0.1"),
        ("eth0", "fe80::1"),
        ("eth0", "2001:db8::1"),
        ("eth1", "10.1.0.1"),
    ];
    addresses.map(|(interface, ip)| address(interface, ip)).to_vec()
}

fn shown(interface: Option<&'static str>) -> Vec<(i32, String, String)> {
    let settings = Settings::read(&Preset(interface)).unwrap();
    let offers = offers(&machine(), &settings, |_| Some(8952));
    let brief = |o: Offer| (o.ep.r#type, o.fabric_name.to_string(), o.source.ip.to_string());
    offers.into_iter().map(brief).collect()
}

#[test]
fn interfaces_keep_their_order_loopback_is_last_and_link_local_absent() {
    let ips = ["10.0.0.1", "2001:db8::1", "10.1.0.1", "127.0.0.1"];
    let expected = Service::ALL.map(|service| {
        ips.map(|ip| (service.kind(), service.fabric().to_string(), ip.to_string()))
    });
    assert_eq!(shown(None), expected.concat());
    assert_eq!(shown(None)[0].0, FI_EP_RDM);
}

#[test]
fn interfaces_may_be_chosen_by_name_or_by_address() {
    let count = |interfaces| shown(Some(interfaces)).len() / Service::ALL.len();
    assert_eq!((count("eth1"), count("eth0"), count("2001:db8::1")), (1, 2, 1));
    assert_eq!(count("eth1,10.0.0.1"), 2);
    assert!(shown(Some("eth9")).is_empty());
}

#[test]
fn loopback_claims_both_near_and_far() {
    let settings = Settings::read(&Preset(Some("lo"))).unwrap();
    for offer in offers(&machine(), &settings, |_| Some(8952)) {
        assert_eq!(offer.caps & DOMAIN_CAPS, DOMAIN_CAPS);
        assert_eq!(offer.domain.caps, DOMAIN_CAPS);
    }
}

#[test]
fn what_may_be_injected_fits_a_packet() {
    let settings = Settings::read(&Preset(Some("eth1"))).unwrap();
    let injected = |bytes| offers(&machine(), &settings, |_| Some(bytes))[0].tx.inject_size;
    assert_eq!([injected(1472), injected(8952)], [1472 - HEADERS_BYTES, INJECT_BYTES_MAX]);
}

#[test]
fn a_machine_with_very_many_addresses_shows_the_first() {
    let many: Vec<_> = (0..=u16::try_from(ADDRESSES_MAX).unwrap())
        .map(|n| address("eth0", &format!("10.0.{}.{}", n >> 8, n & 255)))
        .collect();
    let settings = Settings::read(&Preset(None)).unwrap();
    let shown = offers(&many, &settings, |_| Some(8952)).len();
    assert_eq!(shown, ADDRESSES_MAX * Service::ALL.len());
}
