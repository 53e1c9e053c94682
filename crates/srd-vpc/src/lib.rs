//! Model of virtual private clouds without I/O: objects under EC2's names, and verdicts on packets.
//! The card (`srd-card`) uses the verdict for the first packet of a flow, and `srd vpc explain`
//! shows how it comes about.
//!
//! [`object`] holds the objects as plain data, and [`id`] their identifiers. An object refers to
//! another by its identifier, so a [`World`](object::World) is a set of tables without circular
//! references. [`judge`] returns the verdict on a packet, with its reason. [`compile`] turns the
//! rules into tables for one host. [`express`] has the conditions under which packets use SRD.
//!
//! | module | content |
//! |---|---|
//! | [`object`], [`id`] | objects as plain data, with the fields of flow logs; identifiers |
//! | [`judge`] | the verdict on a packet, step by step, with reasons |
//! | [`compile`] | the rules as tables for one host: `decide` admits or refuses a packet |
//! | [`express`] | conditions of SRD for packets between two interfaces (ENA Express) |
//! | [`packet`] | the header fields that rules evaluate |
//! | [`regions`] | names of regions and zones |
//! | [`nau`] | network address usage: the size of a cloud |
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
pub mod regions;
