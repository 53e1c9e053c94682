//! Trust between processes of one machine: protection of root against files and peers that other
//! users have chosen.
//!
//! | module | content |
//! |---|---|
//! | [`place`] | directories and files that only root can change |
//! | [`socket`] | Unix sockets that have their owner and mode before anyone can connect |
//! | [`peer`] | the user at the other end of a Unix socket |
//! | [`file_identity`] | removal of a file only if it is still the same one |
//! | [`text`] | control characters in texts that another process has sent |
//! | [`memory`] | secrets that stay out of core dumps |
//! | [`private`] | files that hold a secret |
//! | [`process`] | another process, which cannot be mistaken for a later one with its id |
//! | [`privileges`] | users and capabilities of our processes, and how they are dropped |
//! | [`spare`] | users that no account and no other process of the machine has |
//! | [`closing`] | descriptors of another process, closed without blocking |
//! | [`sealed`] | content of a file for a process that may not have the file |
#![forbid(unsafe_code)]

pub mod closing;
pub mod file_identity;
pub mod memory;
pub mod peer;
pub mod place;
pub mod private;
pub mod privileges;
pub mod process;
pub mod sealed;
pub mod socket;
pub mod spare;
pub mod text;
