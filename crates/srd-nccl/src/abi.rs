//! NCCL's binary interface for network plugins, versions 10, 11 and 12.
//!
//! NCCL looks up `ncclNetPlugin_v12` first, then older versions: NCCL 2.30 and later support
//! version 12, 2.28 version 11, and 2.26 version 10. Each version is a table of functions. Versions
//! 11 and 12 differ only in the properties of a device; version 10 has no context.

use std::ffi::{c_char, c_int, c_ulong, c_void};

/// Result of every call: `ncclResult_t`. The plugin never returns `CudaError` or `InProgress`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum NcclResult {
    /// The call succeeded, or has to be repeated.
    Success = 0,
    /// CUDA returned an error.
    CudaError = 1,
    /// The operating system returned an error.
    SystemError = 2,
    /// A bug in the plugin or in NCCL.
    InternalError = 3,
    /// A pointer or number is invalid.
    InvalidArgument = 4,
    /// The environment (variables, interfaces) is not suitable.
    InvalidUsage = 5,
    /// A peer has ended, or does not use this protocol.
    RemoteError = 6,
    /// The operation is not complete yet.
    InProgress = 7,
}

/// Memory of the host: the only kind of memory that the plugin accepts.
pub const NCCL_PTR_HOST: c_int = 1;
/// Device type of a network without a part on a GPU.
pub const NCCL_NET_DEVICE_HOST: c_int = 0;
/// Size in bytes of the handle that a listener gives to its peer.
pub const HANDLE_BYTES: usize = 128;
/// Number of requests that a connection must support at the same time.
pub const NCCL_NET_MAX_REQUESTS: u16 = 32;
/// `NCCL_LOG_WARN`: level of warnings in NCCL's log.
pub const LOG_WARN: c_int = 2;
/// `NCCL_LOG_INFO`: level of information in NCCL's log.
pub const LOG_INFO: c_int = 3;
/// `NCCL_INIT | NCCL_NET`: subsystems of NCCL's log under which the plugin's lines appear.
pub const LOG_SUBSYSTEMS: c_ulong = 0x11;
/// `railId` and `planeId` of a device without rail or plane.
pub const NCCL_NET_ID_UNDEF: i16 = -1;

/// `ncclDebugLogger_t`: level, subsystems, file, line, and the arguments of `printf`.
pub type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);

/// `ncclNetVDeviceProps_t`: the devices that are merged into one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VirtualDevice<const N: usize> {
    /// Number of devices.
    pub ndevs: c_int,
    /// Numbers of the devices.
    pub devs: [c_int; N],
}

/// Properties of a device that all versions have.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // NCCL's names
pub struct Common {
    pub name: *const c_char,
    pub pci_path: *const c_char,
    pub guid: u64,
    pub ptr_support: c_int,
    pub reg_is_global: c_int,
    pub force_flush: c_int,
    /// Link rate in megabits per second.
    pub speed: c_int,
    pub port: c_int,
    /// Latency in microseconds.
    pub latency: f32,
    pub max_comms: c_int,
    pub max_recvs: c_int,
    pub net_device_type: c_int,
    pub net_device_version: c_int,
}

/// `ncclNetProperties_v10_t`: properties of a device in version 10.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // NCCL's names
pub struct PropertiesV10 {
    pub common: Common,
    pub virtual_device: VirtualDevice<4>,
    pub max_p2p_bytes: usize,
    pub max_coll_bytes: usize,
}

/// `ncclNetProperties_v11_t`: properties of a device in version 11.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // NCCL's names
pub struct PropertiesV11 {
    pub common: Common,
    pub virtual_device: VirtualDevice<4>,
    pub max_p2p_bytes: usize,
    pub max_coll_bytes: usize,
    pub max_multi_request_size: c_int,
}

/// `ncclNetProperties_v12_t`: properties of a device in version 12.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // NCCL's names
pub struct PropertiesV12 {
    pub common: Common,
    pub virtual_device: VirtualDevice<8>,
    pub max_p2p_bytes: usize,
    pub max_coll_bytes: usize,
    pub max_multi_request_size: c_int,
    pub rail_id: i16,
    pub plane_id: i16,
}

/// A function pointer, or null.
type Call<F> = Option<F>;
/// `init` of versions 11 and 12: context, communicator, its configuration, logger, profiler.
pub type Init = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *const c_void,
    Option<Logger>,
    *const c_void,
) -> NcclResult;
/// `init` of version 10: logger, profiler.
pub type InitV10 = unsafe extern "C" fn(Option<Logger>, *const c_void) -> NcclResult;
/// `getProperties`: device, properties.
pub type GetProperties<P> = unsafe extern "C" fn(c_int, *mut P) -> NcclResult;
/// `listen` of versions 11 and 12: context, device, handle, listener.
pub type Listen =
    unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void) -> NcclResult;
/// `listen` of version 10: device, handle, listener.
pub type ListenV10 = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> NcclResult;
/// `connect` of versions 11 and 12: context, device, handle, connection, device handle for a GPU.
pub type Connect = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> NcclResult;
/// `connect` of version 10: device, configuration, handle, connection, device handle for a GPU.
pub type ConnectV10 = unsafe extern "C" fn(
    c_int,
    *const c_void,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> NcclResult;
/// `accept`: listener, connection, device handle for a GPU.
pub type Accept =
    unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut *mut c_void) -> NcclResult;
/// `regMr`: connection, address, bytes, kind of memory, registration.
pub type RegMr =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut *mut c_void) -> NcclResult;
/// `isend`: connection, address, bytes, tag, registration, profiler handle, request.
pub type Isend = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    usize,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut *mut c_void,
) -> NcclResult;
/// `irecv`: connection, count, addresses, bytes, tags, registrations, profiler handle, request.
pub type Irecv = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut usize,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> NcclResult;
/// `iflush`: connection, count, addresses, bytes, registrations, request.
pub type Iflush = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
) -> NcclResult;
/// `test`: request, whether the request is complete, bytes of each part.
pub type Test = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> NcclResult;
/// A function whose only argument is an object of NCCL, such as `closeSend`.
pub type On = unsafe extern "C" fn(*mut c_void) -> NcclResult;
/// A function with two objects as arguments, such as `deregMr`: connection, registration.
pub type OnTwo = unsafe extern "C" fn(*mut c_void, *mut c_void) -> NcclResult;

/// The functions that all versions have, from `accept` to `makeVDevice`. Null means that the plugin
/// does not support the function.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)] // NCCL's names
pub struct Calls {
    pub accept: Call<Accept>,
    pub reg_mr: Call<RegMr>,
    pub reg_mr_dma_buf: Call<On>,
    pub dereg_mr: Call<OnTwo>,
    pub isend: Call<Isend>,
    pub irecv: Call<Irecv>,
    pub iflush: Call<Iflush>,
    pub test: Call<Test>,
    pub close_send: Call<On>,
    pub close_recv: Call<On>,
    pub close_listen: Call<On>,
    pub get_device_mr: Call<On>,
    pub irecv_consumed: Call<On>,
    pub make_v_device: Call<On>,
}

/// `ncclNet_v10_t`: table of the plugin's functions in version 10.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // NCCL's names
pub struct NetV10 {
    pub name: &'static [u8; 4],
    pub init: Call<InitV10>,
    pub devices: Call<unsafe extern "C" fn(*mut c_int) -> NcclResult>,
    pub get_properties: Call<GetProperties<PropertiesV10>>,
    pub listen: Call<ListenV10>,
    pub connect: Call<ConnectV10>,
    pub calls: Calls,
}

/// `ncclNet_v11_t` and `ncclNet_v12_t`: table of the plugin's functions. The two versions differ
/// only in the properties of a device.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs)] // NCCL's names
pub struct Net<P> {
    pub name: &'static [u8; 4],
    pub init: Call<Init>,
    pub devices: Call<unsafe extern "C" fn(*mut c_int) -> NcclResult>,
    pub get_properties: Call<GetProperties<P>>,
    pub listen: Call<Listen>,
    pub connect: Call<Connect>,
    pub calls: Calls,
    pub finalize: Call<On>,
    pub set_net_attr: Call<OnTwo>,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Compares with the sizes and offsets that `sizeof` and `offsetof` return for NCCL's own
    /// headers on x86-64 and AArch64.
    #[test]
    fn structures_are_laid_out_as_nccl_lays_them_out() {
        assert_eq!(size_of::<Common>(), 64);
        assert_eq!((offset_of!(Common, guid), offset_of!(Common, ptr_support)), (16, 24));
        assert_eq!((offset_of!(Common, speed), offset_of!(Common, latency)), (36, 44));
        assert_eq!((offset_of!(Common, max_comms), offset_of!(Common, max_recvs)), (48, 52));
        assert_eq!(offset_of!(Common, net_device_version), 60);
        assert_eq!(offset_of!(PropertiesV10, max_p2p_bytes), 88);
        assert_eq!(size_of::<PropertiesV10>(), 104);
        assert_eq!(offset_of!(PropertiesV11, max_multi_request_size), 104);
        assert_eq!(size_of::<PropertiesV11>(), 112);
        assert_eq!(offset_of!(PropertiesV12, max_p2p_bytes), 104);
        assert_eq!(offset_of!(PropertiesV12, max_multi_request_size), 120);
        assert_eq!(offset_of!(PropertiesV12, rail_id), 124);
        assert_eq!(size_of::<PropertiesV12>(), 128);
    }

    #[test]
    fn tables_have_their_calls_where_nccl_looks_for_them() {
        assert_eq!(size_of::<NetV10>(), 160);
        assert_eq!(offset_of!(NetV10, calls) + offset_of!(Calls, isend), 80);
        type NetV12 = Net<PropertiesV12>;
        assert_eq!((size_of::<NetV12>(), size_of::<Net<PropertiesV11>>()), (176, 176));
        assert_eq!(offset_of!(NetV12, connect), 40);
        assert_eq!(offset_of!(NetV12, calls) + offset_of!(Calls, test), 104);
        assert_eq!(offset_of!(NetV12, calls) + offset_of!(Calls, close_listen), 128);
        assert_eq!(offset_of!(NetV12, finalize), 160);
        assert_eq!(offset_of!(NetV12, set_net_attr), 168);
    }
}
