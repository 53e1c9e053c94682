//! The device: owns every object, and is what callers drive.
//!
//! | module | what |
//! |---|---|
//! | `control` | makes, modifies and destroys objects |
//! | `post` | takes work requests |
//! | `operation` | work requests under way, and the datagrams that they lead to |
//! | `outbox`, `transmit` | hands datagrams to the transport, peer by peer |
//! | `sent_ranges` | which bytes of a transfer went in which datagram |
//! | `event` | events of the transport, about them |
//! | `arrive` | judges datagrams of peers: messages |
//! | `rdma` | the same: reads and writes |
//! | `state` | every object and every table |
//! | `single` | a device with one queue pair, ready to send |

mod arrive;
mod control;
mod event;
mod operation;
mod outbox;
mod post;
mod rdma;
mod sent_ranges;
mod single;
mod state;
#[cfg(test)]
mod tests;
mod transmit;

pub(crate) use self::single::SingleQp;
pub use self::state::{Device, Note};
