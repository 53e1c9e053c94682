//! Peers: their numbers, their state, and the sessions with them.
//!
//! | module | content |
//! |---|---|
//! | `connection` | state of one transport peer |
//! | `table` | peers by number, and their connections |
//! | `credit` | number of bytes that each peer may send |
//! | `handshake` | HELLO and ANSWER, the start and the end of sessions |
//! | `probe` | probes of peers for which operations wait |

pub(crate) mod connection;
pub(crate) mod credit;
pub(crate) mod handshake;
pub(crate) mod probe;
pub(crate) mod table;
