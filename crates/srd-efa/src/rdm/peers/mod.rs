//! The other ends: peers by number, what is kept about each, and sessions with them.
//!
//! | module | what |
//! |---|---|
//! | `connection` | everything kept about one transport peer |
//! | `table` | peers by number, and the connections behind them |
//! | `credit` | how much each peer may send |
//! | `handshake` | HELLO and ANSWER, the beginning and the end of sessions |

pub(crate) mod connection;
pub(crate) mod credit;
pub(crate) mod handshake;
pub(crate) mod table;
