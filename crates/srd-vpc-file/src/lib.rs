//! `vpc.toml`: virtual private clouds in the form that a person writes.
//!
//! A file has tables by kind and name, for example `[subnet.web]`, and objects refer to each other
//! by name. Reading a file returns a [`World`](srd_vpc::object::World), or the first error with its
//! line, its cause and a remedy. The format is described in `docs/vpc.md`.
//!
//! | file | content |
//! |---|---|
//! | `document` | TOML tables |
//! | `phrase` | rules, entries and routes: `tcp 443 from 0.0.0.0/0` |
//! | `names` | names of objects, and their identifiers |
//! | `build` | state while a file is read |
//! | `read` | order in which objects are created |
//! | `dhcp` | sets of DHCP options |
//! | `taken` | address ranges in use |
//! | `groups` | other tables of groups, without a read of the whole file |
//! | `types` | positions of instance types |
//! | [`explain`] | the way of a connection's packets, step by step |
//! | [`words`] | a verdict and its steps as text for people |
//! | [`warnings`](mod@warnings) | valid contents that are probably mistakes |
//! | `network`, `machines`, `edges`, `observe` | objects, and checks of their consistency |
#![forbid(unsafe_code)]

mod build;
mod dhcp;
mod document;
mod edges;
pub mod explain;
mod groups;
mod machines;
mod names;
mod network;
mod observe;
mod phrase;
mod read;
mod taken;
mod types;
pub mod warnings;
pub mod words;

pub use groups::GroupCheck;
pub use names::{Kind, Names};
pub use network::is_reserved;
pub use read::{FILE_BYTES_MAX, VpcFile, parse, read, read_from};
pub use types::TypePlaces;
