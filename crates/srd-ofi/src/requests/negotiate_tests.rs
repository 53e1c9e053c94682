use std::ffi::CStr;

use srd_net::LocalAddress;

use super::*;
use crate::settings::{Illegible, Settings, Values};

const KINDS: usize = Service::ALL.len();
const NEW: u32 = fi_version(1, 17);
/// `FI_ORDER_RAS`, which is never offered.
const RAS: u64 = 1 << 2;

struct Nothing;

impl Values for Nothing {
    fn string(&self, _: &CStr) -> Option<String> {
        None
    }

    fn integer(&self, _: &CStr) -> Result<Option<c_int>, Illegible> {
        Ok(None)
    }
}

/// Returns the offers of a machine with one interface and loopback.
fn offered() -> Vec<Offer> {
    let address = |interface: &str, ip: [u8; 4]| LocalAddress {
        interface: interface.into(),
        ip: ip.into(),
        loopback: interface == "lo",
    };
    let addresses = [address("eth0", [10, 0, 0, 1]), address("lo", [127, 0, 0, 1])];
    let settings = Settings::read(&Nothing).unwrap();
    crate::requests::offers::offers(&addresses, &settings, |_| Some(8952))
}

/// Returns the offer of the reliable endpoint on the interface.
fn offer() -> Offer {
    offered().swap_remove(0)
}

/// Returns hints that have every attribute structure, but request nothing.
fn hints() -> Hints {
    let mut nothing = offer();
    alter(&mut nothing, None, NEW);
    let (mut tx, mut rx, mut ep, mut domain) = (nothing.tx, nothing.rx, nothing.ep, nothing.domain);
    (tx.caps, tx.msg_order, tx.size, tx.iov_limit, tx.rma_iov_limit) = (0, 0, 0, 0, 0);
    (rx.caps, rx.msg_order, rx.size, rx.iov_limit) = (0, 0, 0, 0);
    tx.inject_size = 0;
    (ep.r#type, ep.protocol, ep.protocol_version, ep.max_msg_size) = (0, 0, 0, 0);
    (ep.max_order_raw_size, ep.max_order_war_size, ep.max_order_waw_size) = (0, 0, 0);
    (ep.mem_tag_format, ep.tx_ctx_cnt, ep.rx_ctx_cnt) = (0, 0, 0);
    (domain.threading, domain.control_progress, domain.data_progress) = (0, 0, 0);
    (domain.resource_mgmt, domain.av_type, domain.mr_mode, domain.cq_data_size) = (0, 0, 0, 0);
    (domain.cntr_cnt, domain.mr_iov_limit, domain.caps, domain.max_err_data) = (0, 0, 0, 0);
    domain.mr_cnt = 0;
    let (tx, rx, ep, domain) = (Some(tx), Some(rx), Some(ep), Some(domain));
    Hints { tx, rx, ep, domain, ..Hints::default() }
}

fn refuses(word: &str, change: impl FnOnce(&mut Hints)) {
    let mut hints = hints();
    change(&mut hints);
    let why = misfit(&offer(), &hints, NEW).expect_err(word);
    assert!(why.contains(word), "{why}");
}

fn fits(change: impl FnOnce(&mut Hints)) -> Offer {
    let mut hints = hints();
    change(&mut hints);
    let mut offer = offer();
    misfit(&offer, &hints, NEW).unwrap();
    alter(&mut offer, Some(&hints), NEW);
    offer
}

#[test]
fn hints_that_ask_for_nothing_fit() {
    let offer = fits(|_| ());
    assert_eq!(offer.domain.threading, FI_THREAD_SAFE);
    assert_eq!(offer.domain.mr_mode, 0);
}

#[test]
fn what_is_beyond_the_offer_is_refused_with_its_name() {
    refuses("endpoint type", |h| h.ep.as_mut().unwrap().r#type = 1);
    refuses("caps", |h| h.caps = FI_HMEM);
    refuses("format", |h| h.addr_format = FI_SOCKADDR_IN6);
    refuses("fabric", |h| h.fabric_name = Some("efa".into()));
    refuses("domain", |h| h.domain_name = Some("eth7".into()));
    refuses("threading", |h| h.domain.as_mut().unwrap().threading = 99);
    refuses("data_progress", |h| h.domain.as_mut().unwrap().data_progress = 99);
    refuses("address vectors", |h| h.domain.as_mut().unwrap().av_type = 3);
    refuses("cq_data_size", |h| h.domain.as_mut().unwrap().cq_data_size = 9);
    refuses("mr_mode", |h| h.domain.as_mut().unwrap().mr_mode = 3);
    refuses("domain caps", |h| h.domain.as_mut().unwrap().caps = FI_SHARED_AV);
    refuses("max_msg_size", |h| h.ep.as_mut().unwrap().max_msg_size = usize::MAX);
    refuses("tx_ctx_cnt", |h| h.ep.as_mut().unwrap().tx_ctx_cnt = 2);
    refuses("protocol", |h| h.ep.as_mut().unwrap().protocol = 5);
    refuses("inject_size", |h| h.tx.as_mut().unwrap().inject_size = 1 << 20);
    refuses("tx size", |h| h.tx.as_mut().unwrap().size = 1 << 20);
    refuses("tx msg_order", |h| h.tx.as_mut().unwrap().msg_order = RAS);
    refuses("rx msg_order", |h| h.rx.as_mut().unwrap().msg_order = RAS);
    refuses("rx iov_limit", |h| h.rx.as_mut().unwrap().iov_limit = 5);
    refuses("total_buffered_recv", |h| h.rx.as_mut().unwrap().total_buffered_recv = 1);
    refuses("max_order_raw_size", |h| {
        h.caps = FI_RMA;
        h.ep.as_mut().unwrap().max_order_raw_size = usize::MAX;
    });
}

#[test]
fn an_order_that_costs_something_is_told_to_those_who_ask() {
    let nobody = fits(|_| ());
    assert_eq!((nobody.tx.msg_order, nobody.rx.msg_order), (order::ALWAYS, order::ALWAYS));
    let asked = fits(|h| h.tx.as_mut().unwrap().msg_order = FI_ORDER_RAW | FI_ORDER_SAS);
    assert_eq!(asked.tx.msg_order, order::ALWAYS | FI_ORDER_RAW);
    assert_eq!(asked.rx.msg_order, order::ALWAYS);
    let mut unasked = offer();
    alter(&mut unasked, None, NEW);
    assert_eq!(unasked.tx.msg_order, order::ALWAYS);
}

#[test]
fn weaker_hints_come_back_as_they_were_asked() {
    let offer = fits(|h| {
        let domain = h.domain.as_mut().unwrap();
        domain.threading = FI_THREAD_DOMAIN;
        domain.data_progress = FI_PROGRESS_MANUAL;
        domain.av_type = FI_AV_TABLE;
        h.tx.as_mut().unwrap().inject_size = 64;
        h.tx.as_mut().unwrap().op_flags = FI_DELIVERY_COMPLETE;
        h.rx.as_mut().unwrap().size = 16;
    });
    assert_eq!(offer.domain.threading, FI_THREAD_DOMAIN);
    assert_eq!(offer.domain.data_progress, FI_PROGRESS_MANUAL);
    assert_eq!(offer.domain.av_type, FI_AV_TABLE);
    assert_eq!((offer.tx.inject_size, offer.rx.size), (64, 16));
    assert_eq!(offer.tx.op_flags, FI_DELIVERY_COMPLETE);
}

#[test]
fn primary_capabilities_are_those_asked_for_with_their_directions() {
    let offer = fits(|h| h.caps = FI_TAGGED);
    assert_eq!(offer.caps & PRIMARY, FI_TAGGED | DIRECTIONS_MSG);
    assert_eq!(offer.caps & FI_SOURCE, 0);
    assert_eq!(offer.tx.caps & PRIMARY, FI_TAGGED | FI_SEND);
    assert_eq!(offer.rx.caps & PRIMARY, FI_TAGGED | FI_RECV);
    let offer = fits(|h| h.caps = FI_MSG | FI_SEND | FI_SOURCE);
    assert_eq!(offer.caps & (PRIMARY | FI_SOURCE), FI_MSG | FI_SEND | FI_SOURCE);
}

#[test]
fn the_two_models_of_memory_are_echoed_and_newer_bits_are_not_needed() {
    for model in [FI_MR_BASIC, FI_MR_SCALABLE] {
        assert_eq!(fits(|h| h.domain.as_mut().unwrap().mr_mode = model).domain.mr_mode, model);
    }
    let bits = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    assert_eq!(fits(|h| h.domain.as_mut().unwrap().mr_mode = bits).domain.mr_mode, 0);
    let mut old = offer();
    alter(&mut old, None, fi_version(1, 4));
    assert_eq!(old.domain.mr_mode, FI_MR_SCALABLE);
}

fn selected(places: &Places, hints: Option<&Hints>) -> (Vec<Offer>, Vec<Misfit>) {
    select(offered(), hints, places, NEW, |to| match to.ip() {
        ip if ip.is_loopback() => Some([127, 0, 0, 1].into()),
        ip if ip.is_ipv4() => Some([10, 0, 0, 1].into()),
        _ => None,
    })
}

fn place(text: &str) -> Vec<Address> {
    vec![Address::anyone(text.parse().unwrap())]
}

#[test]
fn only_the_interface_that_leads_to_the_destination_is_offered() {
    for (to, from) in [("10.9.9.9:7", [10, 0, 0, 1]), ("127.0.0.1:7", [127, 0, 0, 1])] {
        let places = Places { destination: place(to), ..Places::default() };
        let (offers, misfits) = selected(&places, None);
        assert_eq!((offers.len(), misfits.len()), (KINDS, KINDS));
        for offer in offers {
            assert_eq!(offer.source.ip, std::net::IpAddr::from(from));
            assert_eq!(offer.destination, Some(places.destination[0]));
        }
    }
    let nowhere = Places { destination: place("[2001:db8::1]:7"), ..Places::default() };
    let (offers, misfits) = selected(&nowhere, None);
    assert!(offers.is_empty());
    assert!(misfits[0].contains("no way to fi_srd://[2001:db8::1]:7"), "{}", misfits[0]);
}

#[test]
fn a_source_is_an_address_of_this_machine_or_a_port_at_all_of_them() {
    let at = |text: &str| Places { source: place(text), ..Places::default() };
    let (offers, _) = selected(&at("10.0.0.1:99"), None);
    assert!(offers.len() == KINDS && offers.iter().all(|o| o.source.port == 99));
    assert_eq!(selected(&at("0.0.0.0:99"), None).0.len(), 2 * KINDS);
    assert!(selected(&at("192.0.2.1:99"), None).0.is_empty());
    let hints = Hints { source: Some(place("127.0.0.1:5")[0]), ..Hints::default() };
    let ready = Hints { mode: FI_CONTEXT2, ..hints };
    assert_eq!(selected(&Places::default(), Some(&ready)).0.len(), KINDS);
}

/// Returns the services that fit the changed hints, on one interface.
fn services(change: impl FnOnce(&mut Hints)) -> Vec<Service> {
    let mut hints = hints();
    change(&mut hints);
    let places = Places { source: place("10.0.0.1:0"), ..Places::default() };
    selected(&places, Some(&hints)).0.into_iter().map(|offer| offer.service).collect()
}

/// Sets hints that accept the requirements of the fabric `srd-direct`.
fn direct(h: &mut Hints) {
    h.mode = FI_CONTEXT2;
    h.domain.as_mut().unwrap().mr_mode = FI_MR_LOCAL;
}

#[test]
fn the_native_endpoint_comes_first_and_the_others_for_those_who_ask() {
    assert_eq!(services(|_| ()), [Service::Messages, Service::Datagrams]);
    assert_eq!(services(direct), Service::ALL);
    assert_eq!(services(|h| h.caps = FI_TAGGED), [Service::Messages]);
    assert_eq!(services(|h| h.ep.as_mut().unwrap().r#type = FI_EP_DGRAM), [Service::Datagrams]);
    let reliable = services(|h| {
        direct(h);
        h.ep.as_mut().unwrap().r#type = FI_EP_RDM;
    });
    assert_eq!(reliable, [Service::Messages, Service::Direct]);
    let by_name = services(|h| {
        direct(h);
        h.fabric_name = Some("srd-direct".into());
    });
    assert_eq!(by_name, [Service::Direct]);
    let unready = services(|h| {
        h.mode = FI_CONTEXT2;
        h.fabric_name = Some("srd-direct".into());
    });
    assert_eq!(unready, []);
    let mode_bit_of_old = services(|h| {
        h.mode = FI_CONTEXT2 | FI_LOCAL_MR;
        h.fabric_name = Some("srd-direct".into());
    });
    assert_eq!(mode_bit_of_old, []);
    // Hints as programs for the first releases set them.
    let old = services(|h| {
        h.mode = FI_CONTEXT2 | FI_LOCAL_MR;
        h.domain.as_mut().unwrap().mr_mode = FI_MR_BASIC;
        h.fabric_name = Some("srd-direct".into());
    });
    assert_eq!(old, [Service::Direct]);
}

#[test]
fn a_direct_message_is_one_packet_and_a_direct_write_is_longer() {
    let longest = |caps| {
        let mut hints = hints();
        direct(&mut hints);
        hints.caps = caps;
        let offers = selected(&Places::default(), Some(&hints)).0;
        let mut direct = offers.into_iter().filter(|offer| offer.service == Service::Direct);
        direct.next().unwrap().ep.max_msg_size
    };
    assert_eq!(longest(FI_MSG), 8952 - 128);
    assert_eq!(longest(FI_MSG | FI_RMA), srd_efa::RDMA_BYTES_MAX as usize);
}
