//! Operations on peers' memory: reads, writes and atomic operations.
//!
//! | module | content |
//! |---|---|
//! | `transfer` | reads and writes, at the initiator |
//! | `target` | peers' reads and writes of this endpoint's memory |
//! | `atomic` | atomic operations, at both ends |
//! | `arithmetic` | atomic operations on single elements |

pub(crate) mod arithmetic;
pub(crate) mod atomic;
pub(crate) mod target;
pub(crate) mod transfer;
