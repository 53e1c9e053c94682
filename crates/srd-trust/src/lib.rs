//! Trust between processes of one machine: no other user may choose a file that root creates or
//! opens, or a peer that root trusts.
//!
//! | module | what |
//! |---|---|
//! | [`place`] | directories and files that root alone may change |
//! | [`socket`] | Unix sockets that are bound with their owner and mode, whatever happens beside |
//! | [`peer`] | which user is at the other end of a Unix socket |
//! | [`text`] | control characters in texts that another process has sent |
//! | [`memory`] | secrets that stay out of core dumps |
//! | [`private`] | files that hold a secret |
//! | [`privileges`] | users and capabilities of our processes, and giving them up |
//! | [`closing`] | descriptors of another process, closed without a wait |
#![forbid(unsafe_code)]

pub mod closing;
pub mod memory;
pub mod peer;
pub mod place;
pub mod private;
pub mod privileges;
pub mod socket;
pub mod text;
