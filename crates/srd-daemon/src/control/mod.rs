//! The control socket: how `srd status` and its like talk to a running daemon.
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
//! One request per connection. The socket's owner, group and mode decide which users may connect
//! (0660), nothing else; the user behind a change is logged.
//!
//! Bounds: [`CONNECTIONS_MAX`] at once, of them [`STREAMS_MAX`] that last; a
//! request of [`protocol::REQUEST_BYTES_MAX`] within [`REQUEST_WAIT_MAX`]; an answer
//! that is not taken within [`ANSWER_TAKEN_MAX`] is given up. So a client that stalls
//! costs one thread for seconds, and never another client or a packet.
//!
//! | module | what |
//! |---|---|
//! | [`protocol`] | requests and answers |
//! | [`socket`] | the socket's file: made, kept, found |
//! | [`server`] | the daemon's side |
//! | [`client`] | the commands' side |

pub mod client;
mod connection;
pub mod protocol;
pub mod server;
mod slots;
pub mod socket;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientError};
pub use connection::{ANSWER_TAKEN_MAX, REQUEST_WAIT_MAX};
pub use protocol::{Refusal, RefusalKind, Request, Stats};
pub use server::Server;
pub use slots::{CONNECTIONS_MAX, Loader, STREAMS_MAX};
pub use socket::Socket;
