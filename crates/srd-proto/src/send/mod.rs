//! The sending side of a context: waiting datagrams, packets in flight, and the rate.
//!
//! | module | content |
//! |---|---|
//! | `send_queue` | datagrams that wait, are in flight, or wait to be sent again |
//! | `sent_packets` | the packets in flight |
//! | `cc`, `delay` | congestion control, and the delays that it uses |
//! | `credit` | the share of a receiver |
//! | `pacer`, `egress` | departure times; the rate of our own link |

pub(crate) mod cc;
pub(crate) mod credit;
pub(crate) mod delay;
pub(crate) mod egress;
pub(crate) mod pacer;
pub(crate) mod send_queue;
pub(crate) mod sent_packets;
