//! NFS between machines, through a process at each end.
//!
//! An NFS client mounts from a process on its own machine ([`client`]). That process sends each
//! whole call over one of several connections to the server's machine. There another process
//! ([`serve`]) decrypts TLS and passes the bytes to the NFS server. Each reply returns to the
//! client over its one connection. The messages of NFS itself are not changed.
//!
//! Limits are in [`limits::Limits`]; for each limit a test reaches it.
//!
//! | module | contents |
//! |---|---|
//! | [`client`] | the half beside the NFS client |
//! | [`serve`] | the half beside the NFS server |
//! | [`probe`] | one NULL call, which checks that an NFS server answers |
//! | [`record`] | records of RPC from a stream of bytes |
//! | [`link`] | a connection, plain or TLS, as a reading and a writing half |
//! | [`dial`] | connections to the other half, by name or address |
//! | [`reserved`] | connections from ports that only root may have |
//! | [`tls`] | certificates, lists of revoked certificates, texts of errors |
//! | `key` | private key files that only their owner may use |
//! | [`accept`] | incoming connections, limited in number |
//! | `lines` | log lines about unknown clients, limited in number |
//! | [`limits`], [`metrics`], [`stop`] | common parts of both halves |
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
