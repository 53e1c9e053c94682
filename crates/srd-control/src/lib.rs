//! The EC2 Query API for virtual private clouds.
//!
//! | module | content |
//! |---|---|
//! | [`state`] | accounts, regions and their objects |
#![forbid(unsafe_code)]

pub mod state;
