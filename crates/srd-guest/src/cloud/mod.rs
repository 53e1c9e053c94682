//! The cloud of the card: its instances, and changes while the card runs.
//!
//! | module | content |
//! |---|---|
//! | `world`, `changes`, `pending` | added instances and other changes |
//! | `guests` | instances of this host |
//! | `workers` | the workers of this host, and the instances of each |
//! | `file` | the file that describes the cloud |
//! | `plane`, `asking` | the whole VPC on a thread of its own, and the card's queries to it |
//! | [`reload`] | reading the configuration again |

pub(crate) mod asking;
pub(crate) mod changes;
pub(crate) mod file;
pub(crate) mod guests;
pub(crate) mod pending;
pub(crate) mod plane;
pub(crate) mod reload;
pub(crate) mod workers;
pub(crate) mod world;
