//! Commands for the card: configuration, socket, requests, and answers. The control socket is that
//! of the node, and a connection begins with the node's request `instances`.
//!
//! | module | content |
//! |---|---|
//! | [`config`] | settings of a file |
//! | [`protocol`], [`client`], `server` | requests and answers; the two ends of a connection |
//! | `place` | the place of the socket |
//! | `orders` | requests on their way to the loop |
//! | `gate` | refuses other rules while another process takes over |
//! | `views`, `flows`, `status` | answers to readers, which their own threads format |
//! | `several`, `merge` | changes at all workers; the figures of all workers together |
//! | `trace`, `tracing` | traced packets as text; traces at several workers |

pub mod client;
pub mod config;
pub(crate) mod flows;
pub(crate) mod gate;
pub(crate) mod merge;
pub(crate) mod orders;
pub(crate) mod place;
pub mod protocol;
pub(crate) mod server;
pub(crate) mod several;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod tracing;
pub(crate) mod views;
