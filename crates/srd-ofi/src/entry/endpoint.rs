//! Calls on endpoints, except data transfer.

use std::ffi::{c_int, c_void};
use std::slice;

use super::{Object, close, code, give, head, state, state_of, table};
use crate::abi::bits::{FI_RECV, FI_TRANSMIT};
use crate::abi::domain::fid_domain;
use crate::abi::endpoint::atomic::fi_ops_atomic;
use crate::abi::endpoint::collective::fi_ops_collective;
use crate::abi::endpoint::rma::fi_ops_rma;
use crate::abi::endpoint::tagged::fi_ops_tagged;
use crate::abi::endpoint::{FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, fi_ops_cm, fi_ops_ep, fid_ep};
use crate::abi::errno::{FI_EINVAL, FI_ENOPROTOOPT, FI_ENOSYS, FI_ETOOSMALL};
use crate::abi::fid::{FI_CLASS_EP, FI_ENABLE, FI_GETOPSFLAG, FI_SETOPSFLAG, fi_ops, fid};
use crate::abi::info::fi_info;
use crate::objects::domain::{Domain, Kind, Slot};
use crate::objects::endpoint::{Endpoint, Plan};
use crate::objects::vector::AddressVector;
use crate::requests::address::Address;
use crate::requests::service::Service;
use crate::results::completion::CompletionQueue;
use crate::results::counter::Counter;
use crate::results::event::EventQueue;
use crate::{Errno, Outcome};

// SAFETY: `fid_ep` begins with a fid, and only `open` makes endpoints.
unsafe impl Object for Endpoint {
    type Head = fid_ep;
    const CLASS: usize = FI_CLASS_EP;
    const OPS: &'static fi_ops =
        &fi_ops { close: close::<Self>, bind, control, ..fi_ops::REFUSING };
}

static OPS: fi_ops_ep = fi_ops_ep { cancel, getopt, setopt, ..fi_ops_ep::REFUSING };
static CM: fi_ops_cm = fi_ops_cm { setname, getname, ..fi_ops_cm::REFUSING };
static COLLECTIVE: fi_ops_collective = fi_ops_collective::REFUSING;
static NO_RMA: fi_ops_rma = fi_ops_rma::REFUSING;
static NO_TAGGED: fi_ops_tagged = fi_ops_tagged::REFUSING;
static NO_ATOMIC: fi_ops_atomic = fi_ops_atomic::REFUSING;

/// Implements `fi_endpoint`.
pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    let open = || -> Outcome {
        // SAFETY: the application passes an info, or null.
        let info = unsafe { info.as_ref() }.ok_or(Errno(FI_EINVAL))?;
        // SAFETY: the info and its attributes are complete.
        let asked = unsafe { super::info::read(info) };
        let source = asked.source.ok_or(Errno(FI_EINVAL))?;
        let kind = asked.ep.ok_or(Errno(FI_EINVAL))?.r#type;
        // SAFETY: the domain is open.
        let domain = unsafe { state::<Domain>(domain) };
        let service = Service::find(&domain.fabric.name, kind);
        let service = service.filter(|_| source.ip == domain.ip).ok_or(Errno(FI_EINVAL))?;
        let slot = Slot::take(domain, Kind::Endpoint)?;
        let endpoint = Endpoint::new(
            slot,
            Plan {
                service,
                caps: asked.caps,
                source,
                tx_flags: asked.tx.map_or(0, |tx| tx.op_flags),
                rx_flags: asked.rx.map_or(0, |rx| rx.op_flags),
                operations: asked.tx.map_or(0, |tx| tx.size),
                order: asked.tx.map_or(0, |tx| tx.msg_order),
            },
        )?;
        let messages = service == Service::Messages;
        let make = |_: &Endpoint| fid_ep {
            fid: head::<Endpoint>(context),
            ops: table(&OPS),
            cm: table(&CM),
            msg: table(&super::msg::OPS),
            rma: table(if service == Service::Datagrams { &NO_RMA } else { &super::rma::OPS }),
            tagged: table(if messages { &super::tagged::OPS } else { &NO_TAGGED }),
            atomic: table(if messages { &super::atomic::OPS } else { &NO_ATOMIC }),
            collective: table(&COLLECTIVE),
        };
        // SAFETY: `out` is the application's.
        unsafe { give(out, endpoint, make) }
    };
    code(open())
}

/// Returns the endpoint that begins with `fid`; an error in the child of a fork, which must not
/// wait for a lock of its parent.
unsafe fn endpoint<'a>(fid: *mut fid) -> Outcome<&'a Endpoint> {
    // SAFETY: `fid` is an open object.
    let endpoint = unsafe { state_of::<Endpoint>(fid) }.ok_or(Errno(FI_EINVAL))?;
    endpoint.slot.check()?;
    Ok(endpoint)
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    let bind = || -> Outcome {
        // SAFETY: both are open objects.
        unsafe {
            let endpoint = endpoint(fid)?;
            if let Some(vector) = state_of::<AddressVector>(other) {
                endpoint.bind_vector(vector)
            } else if let Some(queue) = state_of::<CompletionQueue>(other) {
                endpoint.bind_completions(queue, flags)
            } else if let Some(counter) = state_of::<Counter>(other) {
                endpoint.bind_counter(counter, flags)
            } else if let Some(events) = state_of::<EventQueue>(other) {
                endpoint.bind_events(events)
            } else {
                Err(Errno(FI_EINVAL))
            }
        }
    };
    code(bind())
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let control = || -> Outcome {
        // SAFETY: `fid` is an open endpoint.
        let endpoint = unsafe { endpoint(fid) }?;
        let flags = arg.cast::<u64>();
        match command {
            FI_ENABLE => endpoint.enable(),
            FI_GETOPSFLAG | FI_SETOPSFLAG if flags.is_null() => Err(Errno(FI_EINVAL)),
            // SAFETY: both commands come with flags.
            FI_SETOPSFLAG => endpoint.set_flags(unsafe { *flags }),
            FI_GETOPSFLAG => {
                // SAFETY: both commands come with flags.
                let half = unsafe { *flags } & (FI_TRANSMIT | FI_RECV);
                let answer = match half {
                    FI_TRANSMIT => endpoint.tx_flags(),
                    FI_RECV => endpoint.rx_flags(),
                    _ => return Err(Errno(FI_EINVAL)),
                };
                // SAFETY: both commands come with flags.
                unsafe { *flags = answer };
                Ok(())
            }
            _ => Err(Errno(FI_ENOSYS)),
        }
    };
    code(control())
}

unsafe extern "C" fn cancel(fid: *mut fid, context: *mut c_void) -> isize {
    // SAFETY: `fid` is an open endpoint.
    super::sent(unsafe { endpoint(fid) }.and_then(|endpoint| endpoint.cancel(super::at(context))))
}

unsafe extern "C" fn getname(fid: *mut fid, addr: *mut c_void, addrlen: *mut usize) -> c_int {
    // SAFETY: `fid` is an open endpoint; buffer and length are the application's.
    let get = || unsafe { super::av::write_address(endpoint(fid)?.name(), addr, addrlen) };
    code(get())
}

unsafe extern "C" fn setname(fid: *mut fid, addr: *mut c_void, addrlen: usize) -> c_int {
    let set = || -> Outcome {
        if addr.is_null() {
            return Err(Errno(FI_EINVAL));
        }
        // SAFETY: the application passes `addrlen` bytes.
        let bytes = unsafe { slice::from_raw_parts(addr.cast(), addrlen) };
        let place = Address::decode(bytes).ok_or(Errno(FI_EINVAL))?;
        // SAFETY: `fid` is an open endpoint.
        unsafe { endpoint(fid) }?.rename(place)
    };
    code(set())
}

unsafe extern "C" fn getopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    bytes: *mut usize,
) -> c_int {
    let get = || -> Outcome {
        known_option(level, name)?;
        // SAFETY: `fid` is an open endpoint; the application gives `*bytes` bytes.
        unsafe {
            if *bytes < size_of::<usize>() {
                return Err(Errno(FI_ETOOSMALL));
            }
            value.cast::<usize>().write_unaligned(endpoint(fid)?.multi_recv_bytes());
            *bytes = size_of::<usize>();
        }
        Ok(())
    };
    code(get())
}

unsafe extern "C" fn setopt(
    fid: *mut fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    bytes: usize,
) -> c_int {
    let set = || -> Outcome {
        known_option(level, name)?;
        if bytes != size_of::<usize>() || value.is_null() {
            return Err(Errno(FI_EINVAL));
        }
        // SAFETY: `fid` is an open endpoint; the application provides the bytes of a `usize`.
        unsafe { endpoint(fid)?.set_multi_recv_bytes(value.cast::<usize>().read_unaligned()) }
    };
    code(set())
}

fn known_option(level: c_int, name: c_int) -> Outcome {
    let known = level == FI_OPT_ENDPOINT && name == FI_OPT_MIN_MULTI_RECV;
    if known { Ok(()) } else { Err(Errno(FI_ENOPROTOOPT)) }
}
