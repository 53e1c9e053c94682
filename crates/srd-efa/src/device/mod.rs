//! The device: it owns every object, and has the calls for users of the verbs.
//!
//! | module | content |
//! |---|---|
//! | `control` | creating, modifying and destroying objects |
//! | `post` | posting of work requests |
//! | `operation` | outstanding work requests, and their datagrams |
//! | `outbox`, `transmit` | handing datagrams to the transport, for each peer |
//! | `sent_ranges` | the byte range of each datagram of a transfer |
//! | `event` | events of the transport |
//! | `arrive` | admission of peers' messages |
//! | `rdma` | admission of peers' reads and writes |
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
