//! Virtual private clouds, pure: objects under EC2's names, and what they say about a packet.
//!
//! [`object`] holds the objects as plain data, [`id`] their names. An object refers to another by
//! its identifier, so that a [`World`](object::World) is a set of tables and nothing points in a
//! circle. [`judge`] says what happens to a packet, and why; [`compile`] turns the rules into
//! tables for one host; [`express`] says which packets may ride SRD.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod compile;
pub mod express;
pub mod id;
pub mod judge;
pub mod nau;
pub mod object;
pub mod packet;
