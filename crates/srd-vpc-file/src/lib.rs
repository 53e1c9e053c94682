//! `vpc.toml`: virtual private clouds as a person writes them down.
//!
//! A file has tables by kind and name, `[subnet.web]`, and objects refer to each other by name.
//! Reading it gives a [`World`](srd_vpc::object::World), or the first error with its line, its
//! cause and a remedy. The format is described in `docs/vpc.md`.
//!
//! | file | what |
//! |---|---|
//! | `document` | the tables, as TOML |
//! | `phrase` | rules, entries and routes: `tcp 443 from 0.0.0.0/0` |
//! | `names` | names of objects, and the identifiers that they get |
//! | `build` | a file that is being read |
//! | `read` | the order in which objects are made |
//! | `taken` | ranges of addresses that are taken |
//! | [`words`] | what the objects say of a packet, for people |
//! | [`warnings`](mod@warnings) | what a file may say and hardly ever means |
//! | `network`, `machines`, `edges`, `observe` | the objects, and what must agree |
#![forbid(unsafe_code)]

mod build;
mod dhcp;
mod document;
mod edges;
mod machines;
mod names;
mod network;
mod observe;
mod phrase;
mod read;
mod taken;
pub mod warnings;
pub mod words;

pub use names::{Kind, Names};
pub use read::{FILE_BYTES_MAX, VpcFile, parse, read, read_from};
