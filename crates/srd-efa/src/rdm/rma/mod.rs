//! Peers' memory: reads, writes and atomic operations.
//!
//! | module | what |
//! |---|---|
//! | `transfer` | reads and writes, at the initiator |
//! | `target` | peers' reads and writes of our memory |
//! | `atomic` | atomic operations, at both ends |
//! | `arithmetic` | what they do to single elements |

pub(crate) mod arithmetic;
pub(crate) mod atomic;
pub(crate) mod target;
pub(crate) mod transfer;
