//! Model of virtual private clouds without I/O: objects under EC2's names, and verdicts on packets.
//!
//! [`object`] holds the objects as plain data, and [`id`] their identifiers. An object refers to
//! another by its identifier, so a [`World`](object::World) is a set of tables without circular
//! references. [`judge`] returns the verdict on a packet, with its reason. [`compile`] turns the
//! rules into tables for one host. [`express`] decides which packets may use SRD.
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
