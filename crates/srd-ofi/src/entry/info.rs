//! `fi_getinfo`: from hints in C to offers, and back.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use crate::abi::bits::{FI_NUMERICHOST, FI_SOURCE};
use crate::abi::errno::{FI_EINVAL, FI_ENODATA, FI_ENOMEM};
use crate::abi::info::{fi_domain_attr, fi_info};
use crate::core::{Core, Level, core, log};
use crate::parameters::settings;
use crate::requests::address::Address;
use crate::requests::hints::{Hints, Places};
use crate::requests::offers::Offer;
use crate::requests::preferred;
use crate::requests::service::Service;
use crate::{Errno, Outcome};

/// Flag of calls by libfabric's own layers (`ofi_rxm`, `ofi_rxd`), which look for a provider below
/// them. Unless `FI_SRD_LAYERS` is set, such a call finds nothing: a layer over datagrams would
/// come first in the list of providers, before the native endpoint, and add a second
/// acknowledgement and a second window.
const FOR_A_LAYER: u64 = 1 << 59;

/// Bytes of a domain's attributes that all releases share: without the padding after the last
/// field.
const DOMAIN_BYTES: usize = std::mem::offset_of!(fi_domain_attr, tclass) + size_of::<u32>();

/// Handles the core's request for the offers that fit the hints.
pub(super) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    out: *mut *mut fi_info,
) -> c_int {
    let Some(core) = core() else { return -FI_ENODATA };
    // SAFETY: the core passes its own hints with complete attributes, or null.
    let hints = unsafe { hints.as_ref().map(|hints| read(hints)) };
    // SAFETY: both are C strings or null.
    let (node, service) = unsafe { (super::text(node), super::text(service)) };
    let for_a_layer = flags & FOR_A_LAYER != 0;
    let found = places(node, service, flags)
        .and_then(|places| answer(hints, &places, version, for_a_layer));
    let offers = match found {
        Ok(offers) => offers,
        Err(error) => return -error.0,
    };
    // SAFETY: the core passes `out` for the list.
    super::code(unsafe { write_all(core, &offers, out) })
}

/// Returns the offers that fit a call.
fn answer(
    hints: Option<Hints>,
    places: &Places,
    version: u32,
    for_a_layer: bool,
) -> Outcome<Vec<Offer>> {
    let nothing = Errno(FI_ENODATA);
    let settings = settings().ok_or(nothing)?;
    if for_a_layer && !settings.layers {
        log(Level::Info, "no layer is needed: the native endpoint does what it would add");
        return Err(nothing);
    }
    let addresses = srd_net::local_addresses().map_err(|error| {
        log(Level::Warn, &format!("cannot list this machine's interfaces: {error}"));
        nothing
    })?;
    let mut all = crate::requests::offers::offers(&addresses, &settings, |address| {
        srd_net::link::local_packet_bytes(address.ip).ok()
    });
    all.retain(|offer| !for_a_layer || offer.service == Service::Datagrams);
    let (mut offers, reasons) =
        crate::requests::negotiate::select(all, hints.as_ref(), places, version, |to| {
            srd_net::Link::towards(to).ok().map(|link| link.local)
        });
    if settings.interface.is_none() && !preferred::is_named(hints.as_ref(), places) {
        offers = preferred::preferred(offers, |to| srd_net::Link::towards(to).ok()?.interface);
    }
    for reason in reasons {
        log(Level::Info, &reason);
    }
    if offers.is_empty() { Err(nothing) } else { Ok(offers) }
}

/// Resolves the node and the service in a call of `fi_getinfo` to local or remote addresses.
fn places(node: Option<&str>, service: Option<&str>, flags: u64) -> Outcome<Places> {
    let source = flags & FI_SOURCE != 0;
    if node.is_none() && service.is_none() {
        return if source { Err(Errno(FI_EINVAL)) } else { Ok(Places::default()) };
    }
    let host = match node {
        Some(node) if flags & FI_NUMERICHOST != 0 && node.parse::<std::net::IpAddr>().is_err() => {
            return Err(Errno(FI_ENODATA));
        }
        Some(node) => vec![node],
        // The call names only a port. As a source it is a port at any local address; as a
        // destination it is a port on this machine.
        None if source => vec!["0.0.0.0", "::"],
        None => vec!["127.0.0.1", "::1"],
    };
    let mut found = Vec::new();
    for host in host {
        match crate::objects::vector::resolve(host, service) {
            Ok(places) => found.extend(places.into_iter().map(Address::anyone)),
            Err(_) => log(Level::Info, &format!("nobody knows {host}:{}", service.unwrap_or("0"))),
        }
    }
    if found.is_empty() {
        return Err(Errno(FI_ENODATA));
    }
    Ok(if source {
        Places { source: found, ..Places::default() }
    } else {
        Places { destination: found, ..Places::default() }
    })
}

/// Copies an info: hints, or the properties that a new domain or endpoint shall have.
pub(super) unsafe fn read(info: &fi_info) -> Hints {
    let address = |from: *const c_void, bytes: usize| {
        if from.is_null() {
            return None;
        }
        // SAFETY: the application declares that the address has `bytes` bytes.
        Address::decode(unsafe { std::slice::from_raw_parts(from.cast(), bytes) })
    };
    // SAFETY: attributes are null or complete; names are null or C strings. Later releases only
    // append to attributes.
    unsafe {
        let domain = info.domain_attr.as_ref().copied();
        let fabric = info.fabric_attr.as_ref().copied();
        let name = |name: *mut c_char| super::text(name).map(str::to_string);
        Hints {
            caps: info.caps,
            mode: info.mode,
            addr_format: info.addr_format,
            tx: info.tx_attr.as_ref().copied(),
            rx: info.rx_attr.as_ref().copied(),
            ep: info.ep_attr.as_ref().copied(),
            domain,
            domain_name: domain.and_then(|domain| name(domain.name)),
            fabric_name: fabric.and_then(|fabric| name(fabric.name)),
            source: address(info.src_addr, info.src_addrlen),
            destination: address(info.dest_addr, info.dest_addrlen),
        }
    }
}

/// Writes a list to `out`, with an info for each offer.
unsafe fn write_all(core: &Core, offers: &[Offer], out: *mut *mut fi_info) -> Outcome {
    let mut first: *mut fi_info = ptr::null_mut();
    for offer in offers.iter().rev() {
        let info = core.allocate_info();
        // SAFETY: the core allocated the info with all its attributes, and nothing else refers to
        // it yet.
        let written = if info.is_null() { None } else { unsafe { write(offer, &mut *info) } };
        if written.is_none() {
            // SAFETY: both infos came from the core, and the application does not have them yet.
            unsafe {
                core.free_info(info);
                core.free_info(first);
            }
            return Err(Errno(FI_ENOMEM));
        }
        // SAFETY: `info` was checked and is not null.
        unsafe { (*info).next = first };
        first = info;
    }
    // SAFETY: the core passes `out` for the list.
    unsafe { *out = first };
    Ok(())
}

/// Fills an empty info; `None` if memory is short. All memory behind its pointers comes from
/// `malloc`, because the core frees it.
unsafe fn write(offer: &Offer, info: &mut fi_info) -> Option<()> {
    info.caps = offer.caps;
    info.mode = offer.mode;
    info.addr_format = offer.source.format();
    (info.src_addr, info.src_addrlen) = allocate_address(offer.source)?;
    if let Some(destination) = offer.destination {
        (info.dest_addr, info.dest_addrlen) = allocate_address(destination)?;
    }
    // SAFETY: the core allocated all attributes, and they are at least as long as ours. The copy
    // into the domain's attributes ends before the fields that only later releases have.
    unsafe {
        *info.tx_attr = offer.tx;
        *info.rx_attr = offer.rx;
        *info.ep_attr = offer.ep;
        let domain: *const fi_domain_attr = &raw const offer.domain;
        ptr::copy_nonoverlapping(domain.cast::<u8>(), info.domain_attr.cast(), DOMAIN_BYTES);
        (*info.domain_attr).name = allocate_text(&offer.domain_name)?;
        (*info.fabric_attr).name = allocate_text(offer.fabric_name)?;
    }
    Some(())
}

fn allocate_address(address: Address) -> Option<(*mut c_void, usize)> {
    let encoded = address.encode();
    let bytes = encoded.as_slice();
    // SAFETY: allocates memory of this size.
    let memory = unsafe { libc::malloc(bytes.len()) };
    if memory.is_null() {
        return None;
    }
    // SAFETY: the memory is new and as long as the bytes.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast(), bytes.len()) };
    Some((memory, bytes.len()))
}

fn allocate_text(text: &str) -> Option<*mut c_char> {
    let text = CString::new(text).ok()?;
    // SAFETY: copies a C string.
    let copy = unsafe { libc::strdup(text.as_ptr()) };
    (!copy.is_null()).then_some(copy)
}
