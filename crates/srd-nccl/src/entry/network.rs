//! Functions of the whole network: `init`, `devices`, `getProperties`, `setNetAttr`, `finalize`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::{handle_of, out, pointer_of, run, use_logger};
use crate::abi::{
    Common, Logger, NCCL_NET_DEVICE_HOST, NCCL_NET_ID_UNDEF, NCCL_PTR_HOST, NcclResult,
    PropertiesV10, PropertiesV11, PropertiesV12, VirtualDevice,
};
use crate::context::Context;
use crate::flow::PARTS_MAX;
use crate::plugin::{self, Object, objects};
use crate::table::OBJECTS_MAX;
use crate::{Fault, Outcome, machine};

/// Largest message in bytes; `test` returns lengths as C's int.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// Time in microseconds for a message of 8 bytes between two adjacent hosts: docs/perf-notes.md.
const LATENCY_US: f32 = 5.0;

/// Implements `init` of versions 11 and 12: creates a context. The communicator's traffic class is
/// ignored.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn init(
    context: *mut *mut c_void,
    _communicator: u64,
    _config: *const c_void,
    logger: Option<Logger>,
    _profiler: *const c_void,
) -> NcclResult {
    use_logger(logger);
    run("init", || {
        // SAFETY: NCCL guarantees valid pointers: see the module.
        let to = unsafe { out("ctx", context) }?;
        *to = std::ptr::null_mut();
        let context = Context::new(machine::machine()?);
        *to = pointer_of(objects().add(Arc::new(Object::Context(context)))?)?;
        Ok(())
    })
}

/// Implements `init` of version 10: stores the logger, and opens the common context.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn init_v10(logger: Option<Logger>, _profiler: *const c_void) -> NcclResult {
    use_logger(logger);
    run("init", || plugin::common_context().map(|_| ()))
}

/// Implements `devices`: returns the number of devices.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn devices(count: *mut c_int) -> NcclResult {
    run("devices", || {
        // SAFETY: NCCL guarantees valid pointers: see the module.
        let to = unsafe { out("ndev", count) }?;
        *to = c_int::try_from(machine::machine()?.devices.len()).unwrap_or(c_int::MAX);
        Ok(())
    })
}

/// Returns the properties of a device that all versions have. Their texts live as long as the
/// process.
fn common(device: c_int) -> Outcome<Common> {
    let machine = machine::machine()?;
    let info = usize::try_from(device).ok().and_then(|at| machine.devices.get(at));
    let info = info.ok_or_else(|| Fault::argument(format!("there is no device {device}")))?;
    Ok(Common {
        name: info.name.as_ptr(),
        pci_path: info.pci_path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
        guid: info.guid,
        ptr_support: NCCL_PTR_HOST,
        // Registration of memory costs nothing.
        reg_is_global: 0,
        force_flush: 0,
        speed: c_int::try_from(info.rate_mbps).unwrap_or(c_int::MAX),
        port: 0,
        latency: LATENCY_US,
        max_comms: c_int::try_from(OBJECTS_MAX).unwrap_or(c_int::MAX),
        max_recvs: c_int::try_from(PARTS_MAX).unwrap_or(1),
        net_device_type: NCCL_NET_DEVICE_HOST,
        net_device_version: 0,
    })
}

/// Returns a virtual device that consists of one device.
fn alone<const N: usize>(device: c_int) -> VirtualDevice<N> {
    let mut devs = [0; N];
    devs[0] = device;
    VirtualDevice { ndevs: 1, devs }
}

/// Implements `getProperties` of version 10: returns the properties of a device.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn properties_v10(device: c_int, to: *mut PropertiesV10) -> NcclResult {
    run("getProperties", || {
        let properties = PropertiesV10 {
            common: common(device)?,
            virtual_device: alone(device),
            max_p2p_bytes: MESSAGE_BYTES_MAX,
            max_coll_bytes: MESSAGE_BYTES_MAX,
        };
        // SAFETY: NCCL guarantees valid pointers: see the module.
        unsafe { write("props", to, properties) }
    })
}

/// Implements `getProperties` of version 11: returns the properties of a device.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn properties_v11(device: c_int, to: *mut PropertiesV11) -> NcclResult {
    run("getProperties", || {
        let properties = PropertiesV11 {
            common: common(device)?,
            virtual_device: alone(device),
            max_p2p_bytes: MESSAGE_BYTES_MAX,
            max_coll_bytes: MESSAGE_BYTES_MAX,
            max_multi_request_size: 1,
        };
        // SAFETY: NCCL guarantees valid pointers: see the module.
        unsafe { write("props", to, properties) }
    })
}

/// Implements `getProperties` of version 12: returns the properties of a device.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn properties_v12(device: c_int, to: *mut PropertiesV12) -> NcclResult {
    run("getProperties", || {
        let properties = PropertiesV12 {
            common: common(device)?,
            virtual_device: alone(device),
            max_p2p_bytes: MESSAGE_BYTES_MAX,
            max_coll_bytes: MESSAGE_BYTES_MAX,
            max_multi_request_size: 1,
            rail_id: NCCL_NET_ID_UNDEF,
            plane_id: NCCL_NET_ID_UNDEF,
        };
        // SAFETY: NCCL guarantees valid pointers: see the module.
        unsafe { write("props", to, properties) }
    })
}

/// Writes a value to memory that may be uninitialised.
unsafe fn write<T>(name: &str, to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(Fault::argument(format!("{name} is null")));
    }
    // SAFETY: the pointer is not null, so NCCL guarantees that it is valid for a write.
    unsafe { to.write(value) };
    Ok(())
}

/// Implements `setNetAttr`: ignores the hints on the number of peers and flows.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn set_net_attr(_context: *mut c_void, _hints: *mut c_void) -> NcclResult {
    NcclResult::Success
}

/// Implements `finalize`: drops the context. An endpoint ends with the last connection that uses
/// it.
///
/// # Safety
/// NCCL has to follow its documentation: see the module.
pub unsafe extern "C" fn finalize(context: *mut c_void) -> NcclResult {
    run("finalize", || {
        // A communicator that was split off another communicator shares the other's context, which
        // may already be removed.
        if let Some(Object::Context(_)) = objects().find(handle_of(context)).as_deref() {
            drop(objects().remove(handle_of(context)));
        }
        Ok(())
    })
}
