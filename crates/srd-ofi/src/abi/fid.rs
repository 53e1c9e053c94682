//! The head of every object, and the calls that every object has (`rdma/fabric.h`).

use std::ffi::{c_char, c_int, c_void};

layout! {
    /// The head of every object: its class, the application's context, its common calls.
    struct fid: 24 {
        fclass @ 0: usize,
        context @ 8: *mut c_void,
        ops @ 16: *mut fi_ops,
    }
}

ops! {
    /// The calls that every object has.
    struct fi_ops: 56 {
        close @ 8: fn(fid: *mut fid) -> c_int,
        bind @ 16: fn(fid: *mut fid, other: *mut fid, flags: u64) -> c_int,
        control @ 24: fn(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int,
        ops_open @ 32: fn(
            fid: *mut fid, name: *const c_char, flags: u64, ops: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int,
        tostr @ 40: fn(fid: *const fid, buf: *mut c_char, len: usize) -> c_int,
        ops_set @ 48: fn(
            fid: *mut fid, name: *const c_char, flags: u64, ops: *mut c_void,
            context: *mut c_void,
        ) -> c_int,
    }
}

layout! {
    /// Memory that an operation's context points to, if the provider requires it (`FI_CONTEXT`).
    struct fi_context: 32 {
        internal @ 0: [*mut c_void; 4],
    }
}

/// A scattered buffer, as POSIX defines it.
pub use libc::iovec;

/// A peer's address within an address vector.
pub type fi_addr_t = u64;

/// No address, or any address.
pub const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;
/// The number of an address that is not available, such as one whose insertion failed.
pub const FI_ADDR_NOTAVAIL: fi_addr_t = u64::MAX;

/// Classes of objects: values of `fid.fclass`.
pub const FI_CLASS_FABRIC: usize = 1;
pub const FI_CLASS_DOMAIN: usize = 2;
pub const FI_CLASS_EP: usize = 3;
pub const FI_CLASS_AV: usize = 11;
pub const FI_CLASS_MR: usize = 12;
pub const FI_CLASS_EQ: usize = 13;
pub const FI_CLASS_CQ: usize = 14;
pub const FI_CLASS_CNTR: usize = 15;

/// Commands that a program passes to `fi_control`.
pub const FI_GETOPSFLAG: c_int = 2;
pub const FI_SETOPSFLAG: c_int = 3;
pub const FI_GETWAIT: c_int = 5;
pub const FI_ENABLE: c_int = 6;
pub const FI_GETWAITOBJ: c_int = 16;
