//! NFS between machines, through a process at each end.
//!
//! An NFS client mounts from a process on its own machine ([`client`]). That process sends each
//! call whole over one of several connections to the server's machine, and each reply back over
//! the one connection of the client. There another process ([`serve`]) takes TLS off and hands the
//! bytes to the NFS server. No packet of NFS itself is changed.
//!
//! Bounds: [`limits::Limits`], of which each has a test that reaches it.
//!
//! | module | what |
//! |---|---|
//! | [`client`] | the half beside the NFS client |
//! | [`serve`] | the half beside the NFS server |
//! | [`probe`] | one NULL call: is there an NFS server behind this |
//! | [`record`] | records of RPC out of a stream of bytes |
//! | [`link`] | a connection, plain or TLS, as a half that reads and a half that writes |
//! | [`dial`] | connections to the other half, by name or address |
//! | [`reserved`] | connections from ports that only root may have |
//! | [`tls`] | certificates, lists of revoked ones, and what is wrong with them |
//! | `key` | private key files that only their owner may use |
//! | [`accept`] | connections that come in, at most so many |
//! | `lines` | lines of the log about strangers, at most so many |
//! | [`limits`], [`metrics`], [`stop`] | what both halves share |
#![forbid(unsafe_code)]

pub mod accept;
pub mod client;
pub mod dial;
mod key;
pub mod limits;
mod lines;
pub mod link;
pub mod metrics;
pub mod probe;
pub mod record;
pub mod reserved;
pub mod serve;
pub mod stop;
pub mod tls;
