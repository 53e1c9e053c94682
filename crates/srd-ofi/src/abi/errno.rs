//! Numbers of libfabric's errors (`rdma/fi_errno.h`). libfabric's functions return them negated.

use std::ffi::c_int;

pub const FI_EAGAIN: c_int = libc::EAGAIN;
pub const FI_ENOMEM: c_int = libc::ENOMEM;
pub const FI_EBUSY: c_int = libc::EBUSY;
pub const FI_EINVAL: c_int = libc::EINVAL;
pub const FI_ENOENT: c_int = libc::ENOENT;
pub const FI_ENOSPC: c_int = libc::ENOSPC;
pub const FI_ENOSYS: c_int = libc::ENOSYS;
pub const FI_ENODATA: c_int = libc::ENODATA;
pub const FI_EOVERFLOW: c_int = libc::EOVERFLOW;
pub const FI_ENOPROTOOPT: c_int = libc::ENOPROTOOPT;
pub const FI_EADDRNOTAVAIL: c_int = libc::EADDRNOTAVAIL;
pub const FI_ETIMEDOUT: c_int = libc::ETIMEDOUT;
pub const FI_ECANCELED: c_int = libc::ECANCELED;
pub const FI_EIO: c_int = libc::EIO;
pub const FI_EMSGSIZE: c_int = libc::EMSGSIZE;
pub const FI_ENOMSG: c_int = libc::ENOMSG;
pub const FI_EPROTO: c_int = libc::EPROTO;
pub const FI_EHOSTUNREACH: c_int = libc::EHOSTUNREACH;
pub const FI_ECONNRESET: c_int = libc::ECONNRESET;
pub const FI_EKEYREJECTED: c_int = libc::EKEYREJECTED;
pub const FI_EOPNOTSUPP: c_int = libc::EOPNOTSUPP;
pub const FI_EOTHER: c_int = 256;
pub const FI_ETOOSMALL: c_int = 257;
pub const FI_EOPBADSTATE: c_int = 258;
pub const FI_EAVAIL: c_int = 259;
pub const FI_EBADFLAGS: c_int = 260;
pub const FI_EDOMAIN: c_int = 262;
pub const FI_ENOCQ: c_int = 263;
pub const FI_ETRUNC: c_int = 265;
pub const FI_ENOKEY: c_int = 266;
pub const FI_ENOAV: c_int = 267;
