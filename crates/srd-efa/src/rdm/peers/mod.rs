//! Who is at the other end: peers by number, what is kept about each, sessions with them.
//!
//! | module | what |
//! |---|---|
//! | `connection` | everything kept about one transport peer |
//! | `table` | peers by number, and the connections behind them |
//! | `credit` | how much a peer may send, and how it gets to know |
//! | `handshake` | HELLO and its answer, the end of sessions |

pub(crate) mod connection;
pub(crate) mod credit;
pub(crate) mod handshake;
pub(crate) mod table;
