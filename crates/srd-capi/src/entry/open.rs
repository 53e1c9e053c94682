//! Functions for opening and closing, addresses and peers.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use super::{SrdEndpoint, endpoints, handle_of, on, out, run, text, write};
use crate::address::Address;
use crate::endpoint::Endpoint;
use crate::options::{OPTIONS_BYTES_MAX, OPTIONS_BYTES_MIN, RawOptions, RequestedOptions};
use crate::{Error, Outcome, Status};

/// Implements `srd_open`: opens an endpoint.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_open(
    options: *const RawOptions,
    endpoint: *mut *mut SrdEndpoint,
) -> c_int {
    run(|| {
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        let to = unsafe { out("endpoint", endpoint) }?;
        *to = std::ptr::null_mut();
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        let given = unsafe { read(options) }?;
        let locals = srd_net::local_addresses()
            .map_err(|error| Error::new(Status::System, format!("no addresses: {error}")))?;
        let opened = Arc::new(Endpoint::open(&given.check(&locals)?)?);
        match endpoints::add(Arc::clone(&opened)) {
            Ok(handle) => *to = std::ptr::without_provenance_mut(handle),
            Err(error) => {
                opened.close();
                return Err(error);
            }
        }
        Ok(0)
    })
}

/// Reads the options of a program. Their first field is their size in bytes, which depends on the
/// release whose header the program was compiled with.
///
/// # Safety
/// `options` is null, or refers to as many bytes as its first field states.
unsafe fn read(options: *const RawOptions) -> Outcome<RequestedOptions> {
    if options.is_null() {
        return Ok(RequestedOptions::default());
    }
    if !options.is_aligned() {
        return Err(Error::invalid("options: they are not aligned as srd_options are"));
    }
    // SAFETY: every release's structure begins with its size.
    let size = unsafe { (&raw const (*options).size).read() };
    if !(OPTIONS_BYTES_MIN..=OPTIONS_BYTES_MAX).contains(&size) {
        let text = format!("options.size = {size}: call srd_options_init first");
        return Err(Error::invalid(text));
    }
    let known = size.min(size_of::<RawOptions>());
    let mut raw = RawOptions::default();
    // SAFETY: both structures have at least `known` bytes, and every bit pattern is valid for each
    // field.
    unsafe { std::ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut raw).cast(), known) };
    // SAFETY: the program's structure has `size` bytes.
    let rest = unsafe { std::slice::from_raw_parts(options.cast::<u8>().add(known), size - known) };
    if raw.reserved != 0 || rest.iter().any(|byte| *byte != 0) {
        return Err(Error::invalid(
            "options: something is set that this release does not know: install a newer one",
        ));
    }
    // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
    unsafe {
        Ok(RequestedOptions {
            address: text("options.address", raw.address)?,
            interface: text("options.interface", raw.interface)?,
            job_key_file: text("options.job_key_file", raw.job_key_file)?,
            job_key: raw.job_key.cast::<[u8; 32]>().as_ref().copied(),
            port: raw.port,
            paths: raw.paths,
            packet_bytes_max: raw.packet_bytes_max,
            answer_timeout_ms: raw.answer_timeout_ms,
            peer_timeout_ms: raw.peer_timeout_ms,
            operations_max: raw.operations_max,
            receives_max: raw.receives_max,
            events_max: raw.events_max,
        })
    }
}

/// Implements `srd_close`: closes an endpoint. In the child of a fork, closing a handle of the
/// parent does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn srd_close(endpoint: *mut SrdEndpoint) -> c_int {
    run(|| {
        match endpoints::remove(handle_of(endpoint)) {
            Ok(closed) => closed.close(),
            Err(error) if error.status == Status::Forked => {}
            Err(error) => return Err(error),
        }
        Ok(0)
    })
}

/// Implements `srd_address`: returns the endpoint's address as text.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_address(
    endpoint: *mut SrdEndpoint,
    text: *mut c_char,
    room: usize,
) -> c_int {
    on(endpoint, |endpoint| {
        let address = endpoint.address().to_string();
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        unsafe { write(&address, text, room) }
    })
}

/// Implements `srd_connect`: adds a peer.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_connect(
    endpoint: *mut SrdEndpoint,
    address: *const c_char,
    peer: *mut u64,
) -> c_int {
    on(endpoint, |endpoint| {
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        let (to, given) = unsafe { (out("peer", peer)?, text("address", address)?) };
        let given = given.ok_or_else(|| Error::invalid("address: it is null"))?;
        let address = Address::parse(&given)?;
        let own = endpoint.address().place;
        // SAFETY: the call names no memory.
        *to = unsafe { endpoint.submit(|submitter| submitter.connect(own, address)) }?;
        Ok(0)
    })
}

/// Implements `srd_disconnect`: removes a peer.
#[unsafe(no_mangle)]
pub extern "C" fn srd_disconnect(endpoint: *mut SrdEndpoint, peer: u64) -> c_int {
    on(endpoint, |endpoint| {
        // SAFETY: the call names no memory.
        unsafe { endpoint.submit(|submitter| submitter.disconnect(peer)) }?;
        Ok(0)
    })
}

/// Implements `srd_peer_address`: returns a peer's address as text.
///
/// # Safety
/// The program has to follow `srd.h`: see the page of the module `entry`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn srd_peer_address(
    endpoint: *mut SrdEndpoint,
    peer: u64,
    text: *mut c_char,
    room: usize,
) -> c_int {
    on(endpoint, |endpoint| {
        // SAFETY: the call names no memory.
        let address = unsafe { endpoint.submit(|submitter| submitter.address_of(peer)) }?;
        // SAFETY: the C program guarantees valid pointers: see the page of `entry`.
        unsafe { write(&address.to_string(), text, room) }
    })
}
