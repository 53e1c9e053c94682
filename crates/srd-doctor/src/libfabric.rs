//! Queries the offers of a libfabric (the entries of `fi_getinfo`) in this process. The provider
//! libraries that the libfabric loads may crash or hang, so the process should have no other
//! purpose: see `mpi::offers`.
//!
//! The structures in this module declare only fields that have the same offset in every libfabric
//! release since 1.0. The fields are only read. All `unsafe` code of this crate is in this module.

#![allow(unsafe_code)]

use crate::mpi::{Offer, Offers};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Largest number of entries of `fi_getinfo`'s list that are read.
const OFFERS_MAX: usize = 256;
/// The requested version of the libfabric interface: 1.17.
const ASKED: u32 = 1 << 16 | 17;

#[repr(C)]
struct FabricAttr {
    fabric: *const c_void,
    name: *const c_char,
    prov_name: *const c_char,
}

#[repr(C)]
struct DomainAttr {
    domain: *const c_void,
    name: *const c_char,
}

#[repr(C)]
struct EpAttr {
    kind: c_int,
}

#[repr(C)]
struct Info {
    next: *const Info,
    caps: u64,
    mode: u64,
    addr_format: u32,
    src_addrlen: usize,
    dest_addrlen: usize,
    src_addr: *const c_void,
    dest_addr: *const c_void,
    handle: *const c_void,
    tx_attr: *const c_void,
    rx_attr: *const c_void,
    ep_attr: *const EpAttr,
    domain_attr: *const DomainAttr,
    fabric_attr: *const FabricAttr,
    nic: *const c_void,
}

const _: () = assert!(size_of::<Info>() == 120, "as libfabric has it on 64-bit machines");

type Version = unsafe extern "C" fn() -> u32;
type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *const Info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*const Info);
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// Loads a libfabric and returns its offers, the entries of `fi_getinfo`. The error is the reason
/// why the library cannot be queried.
pub(crate) fn ask(library: &Path) -> Result<Offers, String> {
    let name = CString::new(library.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the name is a C string. The library's constructors may do anything, so this process
    // has no other purpose.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        return Err(dl_error());
    }
    let version: Version = symbol(handle, c"fi_version")?;
    let get_info: GetInfo = symbol(handle, c"fi_getinfo")?;
    let free_info: FreeInfo = symbol(handle, c"fi_freeinfo")?;
    let str_error: StrError = symbol(handle, c"fi_strerror")?;
    // SAFETY: the function has this signature in every release, and no argument.
    let version = unsafe { version() };
    let mut offers =
        Offers { major: version >> 16, minor: version & 0xffff, offered: Vec::new(), error: None };
    let mut list = std::ptr::null();
    let nothing = std::ptr::null();
    // SAFETY: node, service and hints are null, and `list` is valid for writing.
    let code = unsafe {
        get_info(ASKED.min(version), nothing, nothing, 0, std::ptr::null(), &raw mut list)
    };
    if code < 0 {
        // SAFETY: the text is a static string of the library.
        let text = unsafe { CStr::from_ptr(str_error(-code)) };
        offers.error = Some(text.to_string_lossy().into_owned());
        return Ok(offers);
    }
    let mut at = list;
    while !at.is_null() && offers.offered.len() < OFFERS_MAX {
        // SAFETY: `at` is an entry of the list that the library has just created, and nothing
        // changes the list.
        let info = unsafe { &*at };
        offers.offered.push(offer(info));
        at = info.next;
    }
    // SAFETY: the library created the list, and it is not read any more.
    unsafe { free_info(list) };
    Ok(offers)
}

fn offer(info: &Info) -> Offer {
    // SAFETY: attributes and their strings are null, or live as long as the entry.
    let (fabric, domain, endpoint) =
        unsafe { (info.fabric_attr.as_ref(), info.domain_attr.as_ref(), info.ep_attr.as_ref()) };
    Offer {
        provider: text(fabric.map(|fabric| fabric.prov_name)),
        fabric: text(fabric.map(|fabric| fabric.name)),
        domain: text(domain.map(|domain| domain.name)),
        is_rdm: endpoint.is_some_and(|endpoint| endpoint.kind == 3),
    }
}

fn text(string: Option<*const c_char>) -> String {
    let Some(string) = string.filter(|string| !string.is_null()) else { return String::new() };
    // SAFETY: the pointer is a C string of an entry that still exists.
    let text = unsafe { CStr::from_ptr(string) };
    text.to_string_lossy().into_owned()
}

/// Returns a function of the library. Its type must be `T`.
fn symbol<T: Copy>(library: *mut c_void, name: &CStr) -> Result<T, String> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>(), "a pointer to a function") };
    // SAFETY: the handle is open and the name is a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() {
        return Err(dl_error());
    }
    // SAFETY: the pointer is not null and has the size of `T`; libfabric guarantees the function's
    // type.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

fn dl_error() -> String {
    // SAFETY: the text is valid in this thread until its next call of a `dl` function.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be loaded".into();
    }
    // SAFETY: the text is a C string and is still valid.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_libfabric_is_an_error_with_its_name() {
        let error = ask(Path::new("/no/such/libfabric.so.1")).unwrap_err();
        assert!(error.contains("/no/such/libfabric.so.1"), "{error}");
        let error = ask(Path::new("libc.so.6")).unwrap_err();
        assert!(error.contains("fi_version"), "{error}");
    }
}
