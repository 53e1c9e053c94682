//! All code of this crate that needs `unsafe`, behind safe functions.
#![allow(unsafe_code)]

pub(crate) mod guard;
pub(crate) mod signal;
mod uring;
