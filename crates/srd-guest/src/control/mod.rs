//! Commands for the card: configuration, socket, requests, and answers.
//!
//! | module | content |
//! |---|---|
//! | [`config`] | settings of a file |
//! | [`protocol`], [`client`], `server` | requests and answers; the two ends of the socket |
//! | `orders` | requests on their way to the loop |
//! | `gate` | refuses other rules while another process takes over |
//! | `views`, `flows`, `status` | answers to readers, which their own threads format |
//! | `trace` | traced packets as text |

pub mod client;
pub mod config;
pub(crate) mod flows;
pub(crate) mod gate;
pub(crate) mod orders;
pub mod protocol;
pub(crate) mod server;
pub(crate) mod status;
pub(crate) mod trace;
pub(crate) mod views;
