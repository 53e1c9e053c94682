//! Operations of the application, from the call that starts them to their end.
//!
//! | module | content |
//! |---|---|
//! | `operation` | the record of an operation, and the numbers of its datagrams |
//! | `submit` | calls of the application, and the queues of each peer |
//! | `at_once` | short messages that pass no queue |
//! | `order` | delay of operations that must not overtake others |
//! | `message` | sending of messages: short ones whole, medium ones in parts, long ones read |
//! | `coalesce` | several small messages in one datagram |
//! | `transmit` | handing datagrams to the transport |
//! | `settle` | the end of datagrams and operations |
//! | `loopback` | operations whose peer is this endpoint |

pub(crate) mod at_once;
pub(crate) mod coalesce;
pub(crate) mod loopback;
pub(crate) mod message;
pub(crate) mod operation;
pub(crate) mod order;
pub(crate) mod settle;
pub(crate) mod submit;
pub(crate) mod transmit;
