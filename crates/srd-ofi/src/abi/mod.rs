//! libfabric's binary interface, written by hand from its headers: releases 1.17 to 2.x.
//!
//! Types and constants have the names and meanings of libfabric's headers and manual pages; each
//! file names its header. Every size and every offset is asserted at compile time, and a test
//! compares all of them with the headers of the machine.
//!
//! | file | contents |
//! |---|---|
//! | [`fid`] | the head of every object |
//! | [`info`] | `fi_info` and its attributes |
//! | [`provider`] | structure that a provider returns to the core |
//! | [`fabric`] [`domain`] [`av`] [`endpoint`] [`cq`] [`eq`] [`cntr`] | objects |
//! | `endpoint::{msg, tagged, rma, atomic, collective}` | tables of data transfer |
//! | [`bits`] [`errno`] | capabilities, modes, orders; errors |
//!
//! Four structures grow from release to release: `fi_domain_attr`, `fi_ops_av`, `fi_mr_attr` and
//! `fi_cq_err_entry`. Here they have the part that all releases share.

#![allow(non_camel_case_types, reason = "the names that the C headers give")]
#![allow(missing_docs, reason = "libfabric's manual pages document each field")]
#![allow(clippy::too_many_arguments, reason = "the C interface has so many")]

use std::ffi::{c_char, c_int};

/// Layout of a structure in C.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name of the structure.
    pub name: &'static str,
    /// Size of the structure in bytes.
    pub bytes: usize,
    /// Fields of the structure, with their offsets in bytes.
    pub fields: &'static [(&'static str, usize)],
}

/// Return value of a call that the provider does not support.
trait Refusal {
    const REFUSED: Self;
}

impl Refusal for c_int {
    const REFUSED: Self = -errno::FI_ENOSYS;
}

impl Refusal for isize {
    const REFUSED: Self = -(errno::FI_ENOSYS as Self);
}

/// The value of a counter cannot express an error, so an unsupported call returns zero.
impl Refusal for u64 {
    const REFUSED: Self = 0;
}

impl Refusal for *const c_char {
    const REFUSED: Self = std::ptr::null();
}

/// A structure, with its size and the offset of each field.
macro_rules! layout {
    ($(#[$meta:meta])* struct $name:ident: $bytes:literal {
        $($field:ident @ $at:literal: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $(pub $field: $type,)*
        }

        impl $name {
            /// Size of the structure in C, and the offsets of its fields.
            pub const LAYOUT: crate::abi::Layout = crate::abi::Layout {
                name: stringify!($name),
                bytes: $bytes,
                fields: &[$((stringify!($field), $at)),*],
            };
        }

        const _: () = {
            assert!(size_of::<$name>() == $bytes);
            $(assert!(std::mem::offset_of!($name, $field) == $at);)*
        };
    };
}

/// A table of calls, which begins with its size. No slot may be empty, because libfabric's inline
/// functions call through most slots without a check. `REFUSING` answers every call with
/// `-FI_ENOSYS`; supported calls replace slots of `REFUSING`.
macro_rules! ops {
    ($(#[$meta:meta])* struct $name:ident: $bytes:literal {
        $($op:ident @ $at:literal: fn($($argument:ident: $type:ty),* $(,)?) -> $result:ty,)*
    }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            pub size: usize,
            $(pub $op: unsafe extern "C" fn($($argument: $type),*) -> $result,)*
        }

        impl $name {
            /// Size of the table in C, and the offsets of its slots.
            pub const LAYOUT: crate::abi::Layout = crate::abi::Layout {
                name: stringify!($name),
                bytes: $bytes,
                fields: &[("size", 0), $((stringify!($op), $at)),*],
            };

            /// Table that answers every call with `-FI_ENOSYS`.
            pub const REFUSING: Self = Self {
                size: size_of::<Self>(),
                $($op: {
                    extern "C" fn refuse($(_: $type),*) -> $result {
                        <$result as crate::abi::Refusal>::REFUSED
                    }
                    refuse
                },)*
            };
        }

        const _: () = {
            assert!(size_of::<$name>() == $bytes);
            $(assert!(std::mem::offset_of!($name, $op) == $at);)*
        };
    };
}

pub mod av;
pub mod bits;
pub mod cntr;
pub mod cq;
pub mod domain;
pub mod endpoint;
pub mod eq;
pub mod errno;
pub mod fabric;
pub mod fid;
pub mod info;
pub mod provider;

/// Every structure of this interface.
pub const LAYOUTS: &[Layout] = &[
    fid::fid::LAYOUT,
    fid::fi_ops::LAYOUT,
    fid::fi_context::LAYOUT,
    info::fi_info::LAYOUT,
    info::fi_fabric_attr::LAYOUT,
    info::fi_domain_attr::LAYOUT,
    info::fi_ep_attr::LAYOUT,
    info::fi_tx_attr::LAYOUT,
    info::fi_rx_attr::LAYOUT,
    provider::fi_provider::LAYOUT,
    fabric::fid_fabric::LAYOUT,
    fabric::fi_ops_fabric::LAYOUT,
    domain::fid_domain::LAYOUT,
    domain::fi_ops_domain::LAYOUT,
    domain::fi_ops_mr::LAYOUT,
    domain::fi_mr_attr::LAYOUT,
    domain::fid_mr::LAYOUT,
    av::fid_av::LAYOUT,
    av::fi_av_attr::LAYOUT,
    av::fi_ops_av::LAYOUT,
    cq::fid_cq::LAYOUT,
    cq::fi_cq_attr::LAYOUT,
    cq::fi_ops_cq::LAYOUT,
    cq::fi_cq_tagged_entry::LAYOUT,
    cq::fi_cq_err_entry::LAYOUT,
    eq::fid_eq::LAYOUT,
    eq::fi_eq_attr::LAYOUT,
    eq::fi_eq_err_entry::LAYOUT,
    eq::fi_ops_eq::LAYOUT,
    cntr::fid_cntr::LAYOUT,
    cntr::fi_cntr_attr::LAYOUT,
    cntr::fi_ops_cntr::LAYOUT,
    endpoint::fid_ep::LAYOUT,
    endpoint::fi_ops_ep::LAYOUT,
    endpoint::fi_ops_cm::LAYOUT,
    endpoint::msg::fi_msg::LAYOUT,
    endpoint::msg::fi_ops_msg::LAYOUT,
    endpoint::tagged::fi_msg_tagged::LAYOUT,
    endpoint::tagged::fi_ops_tagged::LAYOUT,
    endpoint::rma::fi_rma_iov::LAYOUT,
    endpoint::rma::fi_msg_rma::LAYOUT,
    endpoint::rma::fi_ops_rma::LAYOUT,
    endpoint::atomic::fi_ioc::LAYOUT,
    endpoint::atomic::fi_rma_ioc::LAYOUT,
    endpoint::atomic::fi_atomic_attr::LAYOUT,
    endpoint::atomic::fi_msg_atomic::LAYOUT,
    endpoint::atomic::fi_ops_atomic::LAYOUT,
    endpoint::collective::fi_ops_collective::LAYOUT,
];
