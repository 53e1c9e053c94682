//! The context with a peer: how it begins, changes and ends.
//!
//! | module | contents |
//! |---|---|
//! | `handshake` | opening, answer, and the change to the new session |
//! | `lifecycle` | the first packet of a context, a restart of the peer, the end |
//! | `addresses`, `roam` | the addresses of a peer, and their changes |
//! | `silence` | the time for which a peer has owed an answer |
//! | `hibernation` | idle contexts, which release their tables |
//! | `close` | the end of a context by a Close packet |

pub(super) mod addresses;
pub(super) mod close;
pub(super) mod handshake;
pub(super) mod hibernation;
mod lifecycle;
pub(super) mod roam;
pub(super) mod silence;
