//! Matching of offers with an application's hints, and adjustment of the offers that fit.
//!
//! The rules are those of the core's own providers (`ofi_check_info` and `ofi_alter_info` in
//! libfabric's `prov/util/src/util_attr.c`): an offer is refused if a hint exceeds it; a hint
//! that is weaker than the offer is returned as it was given. [`misfit`] only reads; [`alter`]
//! changes; [`select`] combines them.

use std::ffi::c_int;
use std::fmt::LowerHex;
use std::net::{IpAddr, SocketAddr};

use crate::abi::bits::*;
use crate::abi::info::{fi_domain_attr, fi_ep_attr, fi_rx_attr, fi_tx_attr};
use crate::requests::address::Address;
use crate::requests::hints::{Hints, Places};
use crate::requests::offers::Offer;
use crate::requests::order;
use crate::requests::service::Service;

const DIRECTIONS_MSG: u64 = FI_SEND | FI_RECV;
const DIRECTIONS_RMA: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Capabilities that are listed only if the application requests them, or requests no capability.
const PRIMARY: u64 = FI_MSG
    | FI_RMA
    | FI_TAGGED
    | FI_ATOMIC
    | FI_MULTICAST
    | FI_COLLECTIVE
    | DIRECTIONS_MSG
    | DIRECTIONS_RMA
    | FI_NAMED_RX_CTX
    | FI_DIRECTED_RECV
    | FI_HMEM
    | FI_AV_USER_ID
    | FI_PEER;
/// Capabilities that cost nothing, and are listed even without a request.
const SECONDARY: u64 = FI_TRIGGER
    | FI_FENCE
    | FI_RMA_PMEM
    | FI_MULTI_RECV
    | FI_SOURCE
    | FI_RMA_EVENT
    | FI_SOURCE_ERR
    | FI_SHARED_AV
    | FI_REMOTE_COMM
    | FI_LOCAL_COMM;
/// Receive capabilities that old applications also set in `tx_attr.caps`. They are ignored there.
const IGNORED_TX: u64 = FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_RECV
    | FI_DIRECTED_RECV
    | FI_MULTI_RECV
    | FI_SOURCE
    | FI_RMA_EVENT
    | FI_SOURCE_ERR;
/// Send capabilities that old applications also set in `rx_attr.caps`. They are ignored there.
const IGNORED_RX: u64 = FI_READ | FI_WRITE | FI_SEND | FI_FENCE | FI_MULTICAST | FI_NAMED_RX_CTX;

/// Reason why an offer does not fit.
pub type Misfit = String;

/// Release 1.5. Some attributes of a domain are checked only for applications written for this
/// release or later.
pub(crate) const VERSION_1_5: u32 = fi_version(1, 5);

/// Returns the offers that fit a call, adjusted to its hints, and the reasons against the other
/// offers. `way_to` returns the local address from which packets to a destination leave.
#[must_use]
pub fn select(
    offers: Vec<Offer>,
    hints: Option<&Hints>,
    places: &Places,
    version: u32,
    way_to: impl Fn(SocketAddr) -> Option<IpAddr>,
) -> (Vec<Offer>, Vec<Misfit>) {
    let wanted = |address: &Address| vec![*address];
    let given = |address: Option<Address>| address.as_ref().map(wanted).unwrap_or_default();
    let or_hint = |named: &[Address], hint: Option<Address>| {
        if named.is_empty() { given(hint) } else { named.to_vec() }
    };
    let sources = or_hint(&places.source, hints.and_then(|hints| hints.source));
    let destinations = or_hint(&places.destination, hints.and_then(|hints| hints.destination));
    let ways: Vec<(Address, Option<IpAddr>)> =
        destinations.into_iter().map(|to| (to, way_to(to.place()))).collect();
    let (mut fitting, mut misfits) = (Vec::new(), Vec::new());
    for mut offer in offers {
        let fits = hints.map_or(Ok(()), |hints| misfit(&offer, hints, version));
        match fits.and_then(|()| settle(&mut offer, &sources, &ways)) {
            Ok(()) => {
                alter(&mut offer, hints, version);
                fitting.push(offer);
            }
            Err(why) => misfits.push(format!(
                "{} on {} ({}), endpoint type {}: {why}",
                offer.fabric_name, offer.domain_name, offer.source.ip, offer.ep.r#type
            )),
        }
    }
    (fitting, misfits)
}

/// Sets the requested port and the address of the peer in an offer.
fn settle(
    offer: &mut Offer,
    sources: &[Address],
    ways: &[(Address, Option<IpAddr>)],
) -> Result<(), Misfit> {
    let ip = offer.source.ip;
    let here = |wanted: &&Address| {
        wanted.ip == ip || (wanted.ip.is_unspecified() && wanted.ip.is_ipv4() == ip.is_ipv4())
    };
    if !sources.is_empty() {
        let source = sources.iter().find(here);
        offer.source.port = source.ok_or("another address of this machine is asked for")?.port;
    }
    if !ways.is_empty() {
        let way = ways.iter().find(|(_, from)| *from == Some(ip));
        let (to, _) = way.ok_or_else(|| format!("no way to {} leaves from here", ways[0].0))?;
        offer.destination = Some(*to);
    }
    Ok(())
}

/// Checks that an offer fits the hints; `version` is the release for which the application was
/// written.
///
/// # Errors
/// A text about the first attribute that does not fit, with the requested and the offered value.
pub fn misfit(offer: &Offer, hints: &Hints, version: u32) -> Result<(), Misfit> {
    if let Some(ep) = &hints.ep
        && ep.r#type != FI_EP_UNSPEC
        && ep.r#type != offer.ep.r#type
    {
        return Err(format!("endpoint type {} is asked for", ep.r#type));
    }
    bits("caps", hints.caps, offer.caps)?;
    needs("mode", hints.mode, offer.mode)?;
    let family = hints.addr_format;
    if ![FI_FORMAT_UNSPEC, FI_SOCKADDR, offer.source.format()].contains(&family) {
        return Err(format!("addresses of format {family} are asked for"));
    }
    named("fabric", hints.fabric_name.as_deref(), offer.fabric_name)?;
    named("domain", hints.domain_name.as_deref(), &offer.domain_name)?;
    if let Some(asked) = &hints.domain {
        check_domain(&offer.domain, asked, hints, version)?;
    }
    if let Some(asked) = &hints.ep {
        check_endpoint(offer, asked, hints.caps)?;
    }
    if let Some(asked) = &hints.rx {
        check_rx(&offer.rx, asked)?;
    }
    if let Some(asked) = &hints.tx {
        check_tx(&offer.tx, asked)?;
    }
    Ok(())
}

fn check_domain(
    offer: &fi_domain_attr,
    asked: &fi_domain_attr,
    hints: &Hints,
    version: u32,
) -> Result<(), Misfit> {
    rank("threading", asked.threading, offer.threading, thread_rank)?;
    rank("control_progress", asked.control_progress, offer.control_progress, progress_rank)?;
    rank("data_progress", asked.data_progress, offer.data_progress, progress_rank)?;
    rank("resource_mgmt", asked.resource_mgmt, offer.resource_mgmt, resource_rank)?;
    if ![FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE].contains(&asked.av_type) {
        return Err(format!("address vectors of type {} are asked for", asked.av_type));
    }
    at_most("cq_data_size", asked.cq_data_size, offer.cq_data_size)?;
    check_mr_mode(offer.mr_mode, asked.mr_mode, hints.mode, version)?;
    if version < VERSION_1_5 {
        return Ok(());
    }
    at_most("cntr_cnt", asked.cntr_cnt, offer.cntr_cnt)?;
    at_most("mr_iov_limit", asked.mr_iov_limit, offer.mr_iov_limit)?;
    bits("domain caps", asked.caps, offer.caps)?;
    needs("domain mode", asked.mode | hints.mode, offer.mode)?;
    at_most("max_err_data", asked.max_err_data, offer.max_err_data)?;
    at_most("mr_cnt", asked.mr_cnt, offer.mr_cnt)?;
    at_most("auth_key_size", asked.auth_key_size, offer.auth_key_size)
}

/// Compares memory registration modes. The two old models cannot be combined with other bits; the
/// newer bits are modes that the application supports. An offer requires at most local
/// registration, for which the old models used a mode bit.
fn check_mr_mode(offer: c_int, asked: c_int, mode: u64, version: u32) -> Result<(), Misfit> {
    let old = asked & (FI_MR_BASIC | FI_MR_SCALABLE);
    let alone = asked == old && old != FI_MR_BASIC | FI_MR_SCALABLE;
    if !alone && (old != 0 || version < VERSION_1_5) {
        return Err(format!("mr_mode {asked:#x} is no model of its release"));
    }
    let by_mode = (old != 0 || version < VERSION_1_5) && mode & FI_LOCAL_MR != 0;
    let local = asked & FI_MR_LOCAL != 0 || by_mode;
    if offer & FI_MR_LOCAL != 0 && !local {
        return Err("FI_MR_LOCAL is needed".into());
    }
    Ok(())
}

fn check_endpoint(offer: &Offer, asked: &fi_ep_attr, caps: u64) -> Result<(), Misfit> {
    let has = &offer.ep;
    if asked.protocol != 0 && asked.protocol != has.protocol {
        return Err(format!("protocol {:#x} is asked for", asked.protocol));
    }
    let version = (asked.protocol_version as usize, has.protocol_version as usize);
    at_most("protocol_version", version.0, version.1)?;
    at_most("max_msg_size", asked.max_msg_size, has.max_msg_size)?;
    at_most("tx_ctx_cnt", asked.tx_ctx_cnt, offer.domain.max_ep_tx_ctx)?;
    at_most("rx_ctx_cnt", asked.rx_ctx_cnt, offer.domain.max_ep_rx_ctx)?;
    if caps & (FI_RMA | FI_ATOMIC) != 0 {
        at_most("max_order_raw_size", asked.max_order_raw_size, has.max_order_raw_size)?;
        at_most("max_order_war_size", asked.max_order_war_size, has.max_order_war_size)?;
        at_most("max_order_waw_size", asked.max_order_waw_size, has.max_order_waw_size)?;
    }
    at_most("auth_key_size", asked.auth_key_size, has.auth_key_size)
}

fn check_rx(offer: &fi_rx_attr, asked: &fi_rx_attr) -> Result<(), Misfit> {
    bits("rx caps", asked.caps & !IGNORED_RX, offer.caps)?;
    bits("rx op_flags", asked.op_flags, offer.op_flags)?;
    bits("rx msg_order", asked.msg_order, offer.msg_order)?;
    bits("rx comp_order", asked.comp_order, offer.comp_order)?;
    at_most("total_buffered_recv", asked.total_buffered_recv, offer.total_buffered_recv)?;
    at_most("rx size", asked.size, offer.size)?;
    at_most("rx iov_limit", asked.iov_limit, offer.iov_limit)
}

fn check_tx(offer: &fi_tx_attr, asked: &fi_tx_attr) -> Result<(), Misfit> {
    bits("tx caps", asked.caps & !IGNORED_TX, offer.caps)?;
    bits("tx op_flags", asked.op_flags, offer.op_flags)?;
    bits("tx msg_order", asked.msg_order, offer.msg_order)?;
    bits("tx comp_order", asked.comp_order, offer.comp_order)?;
    at_most("inject_size", asked.inject_size, offer.inject_size)?;
    at_most("tx size", asked.size, offer.size)?;
    at_most("tx iov_limit", asked.iov_limit, offer.iov_limit)?;
    at_most("rma_iov_limit", asked.rma_iov_limit, offer.rma_iov_limit)
}

fn bits(what: &str, asked: u64, has: u64) -> Result<(), Misfit> {
    refuse_if(asked & !has != 0, what, asked, has)
}

fn needs(what: &str, ready: u64, needed: u64) -> Result<(), Misfit> {
    refuse_if(needed & !ready != 0, what, ready, needed)
}

fn at_most(what: &str, asked: usize, has: usize) -> Result<(), Misfit> {
    refuse_if(asked > has, what, asked, has)
}

fn refuse_if<T: LowerHex>(refused: bool, what: &str, asked: T, has: T) -> Result<(), Misfit> {
    if refused { Err(format!("{what}: asked {asked:#x}, there is {has:#x}")) } else { Ok(()) }
}

fn named(what: &str, asked: Option<&str>, has: &str) -> Result<(), Misfit> {
    match asked {
        Some(name) if name != has => Err(format!("{what} {name} is asked for, this is {has}")),
        _ => Ok(()),
    }
}

/// Compares models by rank: the offer fits if the rank of the request is at least that of the
/// offer. Rank zero means an unknown model.
fn rank(what: &str, asked: c_int, has: c_int, of: fn(c_int) -> u8) -> Result<(), Misfit> {
    let fits = of(asked) != 0 && of(asked) >= of(has);
    if fits { Ok(()) } else { Err(format!("{what} {asked} is asked for")) }
}

fn thread_rank(model: c_int) -> u8 {
    match model {
        FI_THREAD_SAFE => 1,
        FI_THREAD_FID | FI_THREAD_ENDPOINT | FI_THREAD_COMPLETION => 2,
        FI_THREAD_DOMAIN => 3,
        FI_THREAD_UNSPEC => 4,
        _ => 0,
    }
}

fn progress_rank(model: c_int) -> u8 {
    match model {
        FI_PROGRESS_AUTO => 1,
        FI_PROGRESS_MANUAL => 2,
        FI_PROGRESS_CONTROL_UNIFIED => 3,
        FI_PROGRESS_UNSPEC => 4,
        _ => 0,
    }
}

fn resource_rank(model: c_int) -> u8 {
    match model {
        FI_RM_ENABLED => 1,
        FI_RM_DISABLED => 2,
        FI_RM_UNSPEC => 3,
        _ => 0,
    }
}

/// Turns a fitting offer into the result: weaker hints are returned as given, and capabilities
/// that were not requested are left out.
pub fn alter(offer: &mut Offer, hints: Option<&Hints>, version: u32) {
    let all = offer.caps;
    let empty = Hints::default();
    let given = hints.unwrap_or(&empty);
    if hints.is_some() {
        offer.caps = chosen(all, given.caps, all);
    }
    let asked = given.domain.as_ref();
    alter_domain(&mut offer.domain, asked, offer.caps, version);
    if let Some(asked) = &given.ep {
        alter_endpoint(&mut offer.ep, asked, offer.caps);
    }
    // A message of this service fits one packet, but reads and writes may be longer.
    if offer.caps & FI_RMA == 0 && offer.service == Service::Direct {
        offer.ep.max_msg_size = offer.packet_bytes;
    }
    let (tx_caps, rx_caps) = (given.tx.map_or(0, |tx| tx.caps), given.rx.map_or(0, |rx| rx.caps));
    offer.tx.caps = chosen(offer.caps, tx_caps, offer.tx.caps);
    offer.rx.caps = chosen(offer.caps, rx_caps, offer.rx.caps);
    // The default flags of an endpoint are those that the application sets; without a request all
    // flags are off.
    (offer.tx.op_flags, offer.rx.op_flags) = (0, 0);
    // An order that costs performance is listed only for applications that request it.
    let (tx_order, rx_order) =
        (given.tx.map_or(0, |tx| tx.msg_order), given.rx.map_or(0, |rx| rx.msg_order));
    offer.tx.msg_order &= order::ALWAYS | tx_order;
    offer.rx.msg_order &= order::ALWAYS | rx_order;
    if let Some(asked) = &given.tx {
        offer.tx.op_flags = asked.op_flags;
        echo(&mut offer.tx.inject_size, asked.inject_size);
        echo(&mut offer.tx.size, asked.size);
        echo(&mut offer.tx.iov_limit, asked.iov_limit);
        echo(&mut offer.tx.rma_iov_limit, asked.rma_iov_limit);
    }
    if let Some(asked) = &given.rx {
        offer.rx.op_flags = asked.op_flags;
        echo(&mut offer.rx.size, asked.size);
        echo(&mut offer.rx.iov_limit, asked.iov_limit);
    }
}

fn alter_domain(
    offer: &mut fi_domain_attr,
    asked: Option<&fi_domain_attr>,
    caps: u64,
    version: u32,
) {
    let mr_mode = asked.map_or(0, |asked| asked.mr_mode);
    let needed = offer.mr_mode & FI_MR_LOCAL;
    offer.mr_mode = if mr_mode & (FI_MR_BASIC | FI_MR_SCALABLE) != 0 {
        mr_mode
    } else if version < VERSION_1_5 {
        FI_MR_SCALABLE
    } else {
        needed
    };
    offer.caps = chosen(caps, asked.map_or(0, |asked| asked.caps), offer.caps);
    let Some(asked) = asked else { return };
    echo(&mut offer.threading, asked.threading);
    echo(&mut offer.control_progress, asked.control_progress);
    echo(&mut offer.data_progress, asked.data_progress);
    echo(&mut offer.av_type, asked.av_type);
    echo(&mut offer.resource_mgmt, asked.resource_mgmt);
}

fn alter_endpoint(offer: &mut fi_ep_attr, asked: &fi_ep_attr, caps: u64) {
    if caps & (FI_RMA | FI_ATOMIC) != 0 {
        echo(&mut offer.max_order_raw_size, asked.max_order_raw_size);
        echo(&mut offer.max_order_war_size, asked.max_order_war_size);
        echo(&mut offer.max_order_waw_size, asked.max_order_waw_size);
    }
    if caps & FI_TAGGED != 0 && asked.mem_tag_format != 0 {
        offer.mem_tag_format = asked.mem_tag_format;
    }
    echo(&mut offer.tx_ctx_cnt, asked.tx_ctx_cnt);
    echo(&mut offer.rx_ctx_cnt, asked.rx_ctx_cnt);
}

/// Copies a requested value into the offer; zero is no request.
fn echo<T: Copy + Default + PartialEq>(offer: &mut T, asked: T) {
    if asked != T::default() {
        *offer = asked;
    }
}

/// Returns the capabilities that one part of an offer (domain or endpoint) reports. Primary
/// capabilities: the requested ones, or all if the application requests none. Secondary ones: all
/// that the part has, except `FI_SOURCE`, which must be requested because it costs a lookup for
/// each message. If the application requests no direction (such as `FI_SEND`), it gets all
/// directions.
fn chosen(info: u64, asked: u64, has: u64) -> u64 {
    let mut caps = has & info & SECONDARY;
    if asked == 0 {
        caps |= info & has & PRIMARY;
    } else {
        caps = caps & !FI_SOURCE | asked & (PRIMARY | FI_SOURCE) & has;
    }
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & DIRECTIONS_MSG == 0 {
        caps |= has & DIRECTIONS_MSG;
    }
    if caps & (FI_RMA | FI_ATOMIC) != 0 && caps & DIRECTIONS_RMA == 0 {
        caps |= has & DIRECTIONS_RMA;
    }
    caps
}

#[cfg(test)]
#[path = "negotiate_tests.rs"]
mod tests;
