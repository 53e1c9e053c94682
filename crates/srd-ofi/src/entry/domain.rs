//! The functions of libfabric for domains.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::{Object, close, code, give, head, state, table};
use crate::abi::bits::{FI_COMPARE_ATOMIC, FI_FETCH_ATOMIC, FI_MR_BASIC};
use crate::abi::domain::{fi_ops_domain, fid_domain};
use crate::abi::endpoint::atomic::fi_atomic_attr;
use crate::abi::errno::{FI_EINVAL, FI_EOPNOTSUPP};
use crate::abi::fabric::fid_fabric;
use crate::abi::fid::{FI_CLASS_DOMAIN, fi_ops};
use crate::abi::info::{fi_ep_attr, fi_info};
use crate::objects::arithmetic::{Form, Operation};
use crate::objects::domain::Domain;
use crate::objects::fabric::Fabric;
use crate::requests::offers::ATOMIC_BYTES;
use crate::requests::service::Service;
use crate::{Errno, Outcome};

// SAFETY: `fid_domain` begins with a fid, and only `open` makes domains.
unsafe impl Object for Domain {
    type Head = fid_domain;
    const CLASS: usize = FI_CLASS_DOMAIN;
    const OPS: &'static fi_ops = &fi_ops { close: close::<Self>, ..fi_ops::REFUSING };
}

static OPS: fi_ops_domain = fi_ops_domain {
    av_open: super::av::open,
    cq_open: super::cq::open,
    endpoint: super::endpoint::open,
    cntr_open: super::cntr::open,
    query_atomic,
    ..fi_ops_domain::REFUSING
};

/// Implements `fi_domain`.
pub(super) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    let open = || -> Outcome {
        // SAFETY: the application passes an info, or null.
        let info = unsafe { info.as_ref() }.ok_or(Errno(FI_EINVAL))?;
        // SAFETY: the info and its attributes are complete.
        let asked = unsafe { super::info::read(info) };
        let source = asked.source.ok_or(Errno(FI_EINVAL))?;
        let basic_mr = asked.domain.is_some_and(|domain| domain.mr_mode == FI_MR_BASIC);
        // SAFETY: the fabric is open.
        let fabric = Arc::clone(unsafe { state::<Fabric>(fabric) });
        let elsewhere = asked.fabric_name.is_some_and(|name| name != fabric.name);
        let unknown = |ep: fi_ep_attr| Service::find(&fabric.name, ep.r#type).is_none();
        if elsewhere || asked.ep.is_some_and(unknown) {
            return Err(Errno(FI_EINVAL));
        }
        let make = |_: &Domain| fid_domain {
            fid: head::<Domain>(context),
            ops: table(&OPS),
            mr: table(&super::mr::OPS),
        };
        // SAFETY: `out` is the application's.
        unsafe { give(out, Domain::new(fabric, source.ip, basic_mr), make) }
    };
    code(open())
}

/// Implements `fi_query_atomic`: returns the size of an element in bytes, and the largest number of
/// elements of one operation.
unsafe extern "C" fn query_atomic(
    _: *mut fid_domain,
    datatype: c_int,
    op: c_int,
    attr: *mut c_void,
    flags: u64,
) -> c_int {
    let form = match flags {
        0 => Form::Change,
        FI_FETCH_ATOMIC => Form::Fetch,
        FI_COMPARE_ATOMIC => Form::Compare,
        _ => return -FI_EOPNOTSUPP,
    };
    let Some(operation) = Operation::from_numbers(form, op, datatype) else {
        return -FI_EOPNOTSUPP;
    };
    let room = ATOMIC_BYTES;
    let bytes = if form == Form::Compare { room / 2 } else { room };
    // SAFETY: the application gives an attribute, or null.
    if let Some(attr) = unsafe { attr.cast::<fi_atomic_attr>().as_mut() } {
        *attr = fi_atomic_attr { count: bytes / operation.size, size: operation.size };
    }
    0
}
