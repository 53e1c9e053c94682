//! The structure that a provider returns to the core that loads it (`rdma/providers/fi_prov.h`),
//! and the calls of the core that a provider may use.

use std::ffi::{c_char, c_int, c_void};

use super::fabric::fid_fabric;
use super::fid::fi_context;
use super::info::{fi_fabric_attr, fi_info};

layout! {
    /// A provider. The core of libfabric, which loads it, writes into `context`.
    struct fi_provider: 72 {
        version @ 0: u32,
        fi_version @ 4: u32,
        context @ 8: fi_context,
        name @ 40: *const c_char,
        getinfo @ 48: unsafe extern "C" fn(
            u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info,
        ) -> c_int,
        fabric @ 56: unsafe extern "C" fn(
            *mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void,
        ) -> c_int,
        cleanup @ 64: unsafe extern "C" fn(),
    }
}

/// Types of a provider's parameters.
pub const FI_PARAM_STRING: c_int = 0;
pub const FI_PARAM_INT: c_int = 1;
pub const FI_PARAM_BOOL: c_int = 2;

/// Levels of the log.
pub const FI_LOG_WARN: c_int = 0;
pub const FI_LOG_INFO: c_int = 2;
/// Subsystems of the log.
pub const FI_LOG_CORE: c_int = 0;
