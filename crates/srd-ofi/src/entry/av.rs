//! Calls on address vectors.

use std::ffi::{c_char, c_int, c_void};
use std::slice;

use super::{Object, close, code, give, head, state, text, write_text};
use crate::abi::av::{fi_av_attr, fi_ops_av, fid_av};
use crate::abi::bits::{FI_AV_MAP, FI_AV_TABLE, FI_AV_UNSPEC, FI_SYNC_ERR};
use crate::abi::domain::fid_domain;
use crate::abi::errno::{FI_EBADFLAGS, FI_EINVAL, FI_ENOSYS};
use crate::abi::fid::{FI_ADDR_NOTAVAIL, FI_CLASS_AV, fi_addr_t, fi_ops};
use crate::objects::domain::{Domain, Kind, Slot};
use crate::objects::vector::AddressVector;
use crate::requests::address::Address;
use crate::{Errno, Outcome};

/// `fi_more`: more insertions follow. The provider ignores this flag.
const FI_MORE: u64 = 1 << 18;

/// Table of the calls on address vectors since release 1.20. Older releases of libfabric read only
/// its first part.
#[repr(C)]
struct Ops {
    until_1_17: fi_ops_av,
    insert_auth_key: extern "C" fn(*mut fid_av, *const c_void, usize, *mut fi_addr_t, u64) -> c_int,
    lookup_auth_key: extern "C" fn(*mut fid_av, fi_addr_t, *mut c_void, *mut usize) -> c_int,
    set_user_id: extern "C" fn(*mut fid_av, fi_addr_t, fi_addr_t, u64) -> c_int,
}

static OPS: Ops = Ops {
    until_1_17: fi_ops_av {
        size: size_of::<Ops>(),
        insert,
        insertsvc,
        remove,
        lookup,
        straddr,
        ..fi_ops_av::REFUSING
    },
    insert_auth_key,
    lookup_auth_key,
    set_user_id,
};

const _: () = assert!(size_of::<Ops>() == 88);

// SAFETY: `fid_av` begins with a fid, and only `open` makes address vectors.
unsafe impl Object for AddressVector {
    type Head = fid_av;
    const CLASS: usize = FI_CLASS_AV;
    const OPS: &'static fi_ops = &fi_ops { close: close::<Self>, ..fi_ops::REFUSING };
}

/// Implements `fi_av_open`.
pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    out: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    let open = || -> Outcome {
        // SAFETY: the application passes attributes, or null.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno(FI_EINVAL))?;
        if ![FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE].contains(&attr.r#type) {
            return Err(Errno(FI_EINVAL));
        }
        // Vectors in shared memory, and insertions that end in an event, are not offered.
        if !attr.name.is_null() || attr.flags != 0 {
            return Err(Errno(FI_ENOSYS));
        }
        // SAFETY: the domain is open.
        let slot = Slot::take(unsafe { state::<Domain>(domain) }, Kind::Vector)?;
        let ops = (&raw const OPS.until_1_17).cast_mut();
        let make = |_: &AddressVector| fid_av { fid: head::<AddressVector>(context), ops };
        // SAFETY: `out` is the application's.
        unsafe { give(out, AddressVector::new(slot), make) }
    };
    code(open())
}

/// Inserts addresses in order and returns the number of inserted addresses. With `FI_SYNC_ERR` the
/// context is an array that receives the error of each address.
unsafe extern "C" fn insert(
    av: *mut fid_av,
    addr: *const c_void,
    count: usize,
    fi_addr: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags & !(FI_SYNC_ERR | FI_MORE) != 0 {
        return -FI_EBADFLAGS;
    }
    let errors =
        if flags & FI_SYNC_ERR != 0 { context.cast::<c_int>() } else { std::ptr::null_mut() };
    if addr.is_null() || (flags & FI_SYNC_ERR != 0 && errors.is_null()) {
        return -FI_EINVAL;
    }
    // SAFETY: the vector is open.
    let vector = unsafe { state::<AddressVector>(av) };
    if let Err(error) = vector.slot.check() {
        return -error.0;
    }
    let bytes = vector.address_bytes();
    let mut inserted: c_int = 0;
    for at in 0..count {
        // SAFETY: the application passes `count` addresses of this length, side by side.
        let one = unsafe { slice::from_raw_parts(addr.cast::<u8>().add(at * bytes), bytes) };
        let number = Address::decode(one).ok_or(Errno(FI_EINVAL)).and_then(|a| vector.insert(a));
        inserted += c_int::from(number.is_ok());
        // SAFETY: each array that is not null has `count` entries.
        unsafe {
            if !fi_addr.is_null() {
                *fi_addr.add(at) = number.unwrap_or(FI_ADDR_NOTAVAIL);
            }
            if !errors.is_null() {
                *errors.add(at) = number.err().map_or(0, |error| error.0);
            }
        }
    }
    inserted
}

unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    fi_addr: *mut fi_addr_t,
    flags: u64,
    _: *mut c_void,
) -> c_int {
    let insert = || -> Outcome<u64> {
        if flags & !FI_MORE != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        // SAFETY: both are C strings or null.
        let (node, service) = unsafe { (text(node), text(service)) };
        let (node, service) = (node.ok_or(Errno(FI_EINVAL))?, service.ok_or(Errno(FI_EINVAL))?);
        // SAFETY: the vector is open.
        let vector = unsafe { state::<AddressVector>(av) };
        let mut last = Err(Errno(FI_EINVAL));
        for place in crate::objects::vector::resolve(node, Some(service))? {
            last = vector.insert(Address::anyone(place));
            if last.is_ok() {
                break;
            }
        }
        last
    };
    let number = insert();
    if !fi_addr.is_null() {
        // SAFETY: the application provides memory for one number.
        unsafe { *fi_addr = number.unwrap_or(FI_ADDR_NOTAVAIL) };
    }
    number.map_or_else(|error| -error.0, |_| 1)
}

unsafe extern "C" fn remove(
    av: *mut fid_av,
    fi_addr: *mut fi_addr_t,
    count: usize,
    flags: u64,
) -> c_int {
    if flags != 0 {
        return -FI_EBADFLAGS;
    }
    for at in 0..count {
        // SAFETY: the vector is open, and the application passes `count` numbers.
        let removed = unsafe { state::<AddressVector>(av).remove(*fi_addr.add(at)) };
        if let Err(error) = removed {
            return -error.0;
        }
    }
    0
}

/// Implements `fi_av_lookup`: writes the part of an address that fits, and always the full length.
unsafe extern "C" fn lookup(
    av: *mut fid_av,
    fi_addr: fi_addr_t,
    addr: *mut c_void,
    addrlen: *mut usize,
) -> c_int {
    // SAFETY: the vector is open.
    let found = match unsafe { state::<AddressVector>(av) }.find(fi_addr) {
        Ok(found) => found,
        Err(error) => return -error.0,
    };
    // SAFETY: buffer and length are the application's. The length shows whether the address was
    // cut.
    let _ = unsafe { write_address(found, addr, addrlen) };
    0
}

unsafe extern "C" fn straddr(
    _: *mut fid_av,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: `addr` points to an address, whose family determines its length.
    let decoded = unsafe {
        let bytes = if *addr.cast::<u16>() == 10 { 28 } else { 16 };
        Address::decode(slice::from_raw_parts(addr.cast(), bytes))
    };
    let text = decoded.map_or_else(|| "no address".to_string(), |address| address.to_string());
    // SAFETY: the application gives `*len` bytes.
    unsafe {
        write_text(&text, buf, *len);
        *len = text.len() + 1;
    }
    buf
}

/// Writes an address and its length into the application's memory. An address that does not fit is
/// cut.
///
/// # Errors
/// `FI_ETOOSMALL` if the address was cut.
pub(super) unsafe fn write_address(
    address: Address,
    room: *mut c_void,
    length: *mut usize,
) -> Outcome {
    let encoded = address.encode();
    let bytes = encoded.as_slice();
    // SAFETY: the application gives `*length` bytes at `room`.
    unsafe {
        let fits = bytes.len().min(*length);
        if fits > 0 && !room.is_null() {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.cast(), fits);
        }
        *length = bytes.len();
        let cut = fits < bytes.len();
        if cut { Err(Errno(crate::abi::errno::FI_ETOOSMALL)) } else { Ok(()) }
    }
}

extern "C" fn insert_auth_key(
    _: *mut fid_av,
    _: *const c_void,
    _: usize,
    _: *mut fi_addr_t,
    _: u64,
) -> c_int {
    -FI_ENOSYS
}

extern "C" fn lookup_auth_key(
    _: *mut fid_av,
    _: fi_addr_t,
    _: *mut c_void,
    _: *mut usize,
) -> c_int {
    -FI_ENOSYS
}

extern "C" fn set_user_id(_: *mut fid_av, _: fi_addr_t, _: fi_addr_t, _: u64) -> c_int {
    -FI_ENOSYS
}
