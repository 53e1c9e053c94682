//! Memory that this process shares with the kernel or with another process.
//!
//! | module | contents |
//! |---|---|
//! | `ring` | mappings of such memory, and the rings of AF_XDP in it |
//! | `xdp`, `packet` | AF_XDP sockets and packet sockets |
//! | `records` | data that BPF programs write |
//! | `segment` | memory that two processes share |

pub(crate) mod packet;
pub(crate) mod records;
mod ring;
pub(crate) mod segment;
pub(crate) mod xdp;
