//! Programs in the hosts of a fabric.
//!
//! | module | content |
//! |---|---|
//! | [`exec`], [`enter`] | programs in hosts, and a stand-in for `ssh` |
//! | [`running`], [`command`] | programs in the background, and commands for the network |
//! | [`namespace`] | existing namespaces |
//! | [`priority`] | priority over other load, and CPU use |
//! | `signals` | cleanups when a signal ends the process |

pub mod command;
pub mod enter;
pub mod exec;
pub mod namespace;
pub mod priority;
pub mod running;
pub(crate) mod signals;
