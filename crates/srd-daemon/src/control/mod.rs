//! The control socket, through which `srd status` and other commands reach a running daemon.
//!
//! ```text
//!   client                                  server, one thread per connection
//!   {"request":"status"}\n      ----->
//!                               <-----      {"ok":{...}}\n or {"error":{"kind":..,"text":..}}\n
//!   {"request":"watch",..}\n    ----->
//!                               <-----      {"ok":{...}}\n  {"ok":{...}}\n  ...
//!   {"request":"capture",..}\n  ----->
//!                               <-----      {"ok":null}\n, then pcapng until either side ends
//! ```
//!
//! There is one request per connection. Only the owner, group and mode of the socket's file (0600,
//! or 0660 if the configuration names a group) decide which users may connect. If a request changes
//! something, its user is logged.
//!
//! Bounds: at most [`CONNECTIONS_MAX`] connections at once, of which [`STREAMS_MAX`] may be
//! long-lived. Some of both are for root and the user that started the daemon only
//! ([`CONNECTIONS_RESERVED`], [`STREAMS_RESERVED`]). A request has at most
//! [`protocol::REQUEST_BYTES_MAX`] bytes and must arrive within [`REQUEST_WAIT_MAX`]. If a client
//! does not read an answer within [`ANSWER_TAKEN_MAX`], the connection is closed. Therefore a
//! client that stalls occupies one thread for a few seconds, and delays neither other clients nor
//! packets.
//!
//! | module | contents |
//! |---|---|
//! | [`protocol`] | requests and answers |
//! | [`socket`] | the socket's file: creates, restores and finds it |
//! | `directory` | the directory of the socket: creates it, and opens it for the group |
//! | [`server`], `connection` | the daemon's side; one connection of it |
//! | `slots` | state that connections share, and the limits of their number |
//! | `succession` | hands over to another process |
//! | [`client`] | the commands' side |

pub mod client;
mod connection;
mod directory;
pub mod protocol;
pub mod server;
mod slots;
pub mod socket;
mod succession;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientError};
pub use connection::{ANSWER_TAKEN_MAX, REQUEST_WAIT_MAX, log_asked, log_refused};
pub use protocol::{Refusal, RefusalKind, Request, Stats};
pub use server::Server;
pub use slots::{
    CONNECTIONS_MAX, CONNECTIONS_RESERVED, Loader, STREAMS_MAX, STREAMS_RESERVED, ServeInstances,
    Services,
};
pub use socket::Socket;
