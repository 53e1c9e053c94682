//! Hosts that enrol themselves at the control plane: each host learns its overlay address and its
//! peers here, so that no file of another host is edited when a host is added.
//!
//! ```text
//!  host --TLS--> serve, session --- decisions ---> Control: a transaction of the store
//!                    ^                                |
//!                    +---- signal of a change -- Hosts, Table
//!  operator --Unix socket--> admin -- decisions -----+
//! ```
//!
//! Each change of a host has a generation. A session sends its host all peers once, and then the
//! changes since the generation that it sent last.
//!
//! | key of the store | value in JSON |
//! |---|---|
//! | `hosts/identity` | private key of the controller, and the next one while it is being changed |
//! | `hosts/meta` | block of the overlay, generation, address that was assigned last |
//! | `hosts/host/NAME` | a host |
//! | `hosts/token/ID` | an enrolment token: the hash of its secret, its end, its uses |
//!
//! | module | content |
//! |---|---|
//! | `record` | the records of the store |
//! | [`table`] | the hosts and tokens in memory, and the changes since a generation |
//! | [`decide`] | decisions: enrolment, removal, tokens |
//! | [`rotation`] | decisions: another identity of the controller |
//! | `address` | addresses of the overlay |
//! | [`hub`] | the sessions of connected hosts, and counters |
//! | `catch_up` | the changes of other controllers, before a session gets its part |
//! | `identities` | limit of the connections of one identity |
//! | `rate` | limit of the changes that one host causes |
//! | `session` | one connection of a host |
//! | `journal` | lines for the log about hosts, with limits |
//! | `pods` | connections with a request about pods |
//! | [`serve`] | the listener for hosts |
//! | [`admin`] | the local API of the operator |
//! | `asked` | lines for the log about requests of the operator |
//!
//! Bounds: [`HOSTS_MAX`] hosts, [`TOKENS_MAX`] tokens, and those of [`serve`] and
//! [`srd_enrol::frame`].

mod address;
pub mod admin;
mod asked;
mod catch_up;
pub mod decide;
pub mod hub;
mod identities;
mod journal;
mod pods;
mod rate;
pub(crate) mod record;
pub mod rotation;
pub mod serve;
mod session;
pub mod table;
#[cfg(test)]
mod tests;

pub use table::Hosts;

/// Largest number of hosts: a host can have 1024 peers.
pub const HOSTS_MAX: usize = 1025;
/// Largest number of enrolment tokens.
pub const TOKENS_MAX: usize = 256;
