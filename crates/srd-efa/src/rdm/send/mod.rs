//! From the application's call to the end of the operation.
//!
//! | module | what |
//! |---|---|
//! | `operation` | the record of an operation, and its names in datagrams |
//! | `submit` | takes what the application asks for, and looks after each peer's queues |
//! | `order` | holds back what must not overtake |
//! | `message` | messages leave: short ones whole, medium ones in parts, long ones to be read |
//! | `coalesce` | small messages leave in one datagram |
//! | `transmit` | the way into the transport |
//! | `settle` | what becomes of what was sent |
//! | `loopback` | operations whose peer is this endpoint |

pub(crate) mod coalesce;
pub(crate) mod loopback;
pub(crate) mod message;
pub(crate) mod operation;
pub(crate) mod order;
pub(crate) mod settle;
pub(crate) mod submit;
pub(crate) mod transmit;
