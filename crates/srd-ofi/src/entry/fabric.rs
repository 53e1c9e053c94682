//! The functions of libfabric for fabrics.

use std::ffi::{c_int, c_void};

use srd_host::Process;

use super::{Object, close, code, give, head, state_of, table, text};
use crate::abi::errno::{FI_EAGAIN, FI_EINVAL, FI_ENODATA};
use crate::abi::fabric::{fi_ops_fabric, fid_fabric};
use crate::abi::fid::{FI_CLASS_FABRIC, fi_ops, fid};
use crate::abi::info::fi_fabric_attr;
use crate::objects::fabric::Fabric;
use crate::parameters::settings;
use crate::requests::service::Service;
use crate::results::completion::CompletionQueue;
use crate::results::event::EventQueue;
use crate::{Errno, Outcome};

// SAFETY: `fid_fabric` begins with a fid, and only `open` makes fabrics.
unsafe impl Object for Fabric {
    type Head = fid_fabric;
    const CLASS: usize = FI_CLASS_FABRIC;
    const OPS: &'static fi_ops = &fi_ops { close: close::<Self>, ..fi_ops::REFUSING };
}

static OPS: fi_ops_fabric = fi_ops_fabric {
    domain: super::domain::open,
    eq_open: super::eq::open,
    trywait,
    ..fi_ops_fabric::REFUSING
};

/// Implements `fi_fabric`.
pub(super) unsafe extern "C" fn open(
    attr: *mut fi_fabric_attr,
    out: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    let open = || -> Outcome {
        // SAFETY: the core passes attributes of an info, or null.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno(FI_EINVAL))?;
        // SAFETY: the name is a C string or null.
        let name = unsafe { text(attr.name) }
            .filter(|name| Service::ALL.iter().any(|service| service.fabric() == *name));
        let name = name.ok_or(Errno(FI_ENODATA))?.to_string();
        let settings = settings().ok_or(Errno(FI_EINVAL))?;
        let api_version = attr.api_version;
        let process = Process::current();
        let make =
            |_: &Fabric| fid_fabric { fid: head::<Fabric>(context), ops: table(&OPS), api_version };
        // SAFETY: `out` is the application's.
        unsafe { give(out, Fabric { name, api_version, settings, process }, make) }
    };
    code(open())
}

/// Implements `fi_trywait`: whether the caller may sleep on the file descriptors of these queues.
unsafe extern "C" fn trywait(_: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    let Ok(count) = usize::try_from(count) else { return -FI_EINVAL };
    for at in 0..count {
        // SAFETY: the application passes `count` objects.
        let fid = unsafe { *fids.add(at) };
        // SAFETY: each object is open.
        let (completions, events) =
            unsafe { (state_of::<CompletionQueue>(fid), state_of::<EventQueue>(fid)) };
        let idle = match (completions, events) {
            (Some(queue), _) => queue.is_idle(),
            (_, Some(queue)) => queue.is_idle(),
            (None, None) => return -FI_EINVAL,
        };
        match idle {
            Ok(true) => {}
            Ok(false) => return -FI_EAGAIN,
            Err(error) => return -error.0,
        }
    }
    0
}
